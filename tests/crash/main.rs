//! The appliance dies at each of its named points and at random moments under load. One start
//! later every promise that was made to a client holds, and the host has nothing too much.

#[cfg(test)]
mod moments;
#[cfg(test)]
mod points;
#[cfg(test)]
mod promises;
