//! Random moments under load. `./dev crash --seed N --points M` has many of them; round `i` of
//! seed `n` is the only round of seed `n + i`.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context as _, Result, bail};
use sandboxo_tests::Client;
use sandboxo_zone_protocol::{Random as _, fake::SeededRandom};
use tokio::{task::JoinSet, time::Instant};

use crate::promises::{
    Book, Known, Promise, World, create, import, kill, kill_all, set_timeout, usable,
};

const WORKERS: usize = 3;
/// Of all workers together.
const MOST: usize = 9;
const LONG: u64 = 3600;

#[tokio::test(flavor = "multi_thread")]
async fn row_80_a_death_at_a_random_moment_under_load_loses_no_promise() -> Result<()> {
    let seed = setting("SANDBOXO_CRASH_SEED", 1);
    let rounds = setting("SANDBOXO_CRASH_POINTS", 6);
    let mut world = World::start(3).await?;
    for round in 0..rounds {
        let seed = seed + round;
        let death = one_round(&mut world, seed).await;
        let replay = format!("round {round}; alone: ./dev crash --seed {seed} --points 1");
        say(&death.with_context(|| replay)?);
    }
    world.has_converged().await.context("after the last round")
}

#[expect(clippy::disallowed_methods, reason = "./dev crash says which seed and how many")]
fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

#[expect(clippy::print_stdout, reason = "a long run shows how far it is")]
fn say(text: &str) {
    println!("{text}");
}

/// Under a load that the seed chooses, as is the moment. Gives words for a log.
async fn one_round(world: &mut World, seed: u64) -> Result<String> {
    let random = SeededRandom::new(seed);
    // Half of the deaths are at whatever step is the n-th, half are between steps.
    let patience = if below(&random, 2) == 0 {
        world.appliance.order_death(&format!("any:{}", 1 + below(&random, 150)))?;
        Duration::from_secs(5)
    } else {
        Duration::from_millis(below(&random, 1500))
    };
    let mut shares: Vec<Book> = (0..WORKERS).map(|_| Book::new()).collect();
    for (n, (id, known)) in std::mem::take(&mut world.book).into_iter().enumerate() {
        if let Some(share) = shares.get_mut(n % WORKERS) {
            share.insert(id, known);
        }
    }
    let mut workers = JoinSet::new();
    for (n, share) in shares.into_iter().enumerate() {
        let random = SeededRandom::new(seed.wrapping_mul(1000) + n as u64);
        workers.spawn(work(world.client.clone(), random, share, format!("s{seed}-w{n}")));
    }
    let by_itself = world.dies_within(patience).await?;
    world.appliance.crash()?;
    let mut done = BTreeMap::<&str, u64>::new();
    while let Some(worker) = workers.join_next().await {
        let (share, deeds) = worker??;
        world.book.extend(share);
        for (deed, count) in deeds {
            *done.entry(deed).or_default() += count;
        }
    }
    world.comes_back().await?;
    let surplus = world.book.len().saturating_sub(MOST);
    let lives = world.book.values_mut().filter(|known| known.promise == Promise::Lives);
    kill_all(&world.client, lives.take(surplus).collect()).await?;
    let how = if by_itself { "at a point" } else { "by kill -9" };
    Ok(format!("seed {seed}: died {how} after {done:?}; {} live", world.book.len()))
}

fn below(random: &SeededRandom, end: u64) -> u64 {
    let mut bytes = [0; 8];
    random.fill(&mut bytes);
    u64::from_le_bytes(bytes) % end
}

type Deeds = BTreeMap<&'static str, u64>;

/// One client that has sandboxes of its own, until the server is gone.
async fn work(
    client: Client,
    random: SeededRandom,
    mut own: Book,
    name: String,
) -> Result<(Book, Deeds)> {
    let mut deeds = Deeds::new();
    for step in 0_u64.. {
        let lives: Vec<String> = own
            .iter()
            .filter(|(_, known)| known.promise == Promise::Lives)
            .map(|(id, _)| id.clone())
            .collect();
        let chosen = lives.get(usize::try_from(below(&random, 1 << 32))? % lives.len().max(1));
        let (deed, has_answer) = match (below(&random, 12), chosen) {
            (0..4, _) if lives.len() < MOST / WORKERS + 1 => {
                let brief = below(&random, 4) == 0;
                let seconds = if brief { 1 + below(&random, 2) } else { LONG };
                let until = Instant::now() + Duration::from_secs(seconds);
                let made = create(&client, seconds, &format!("{name}-{step}")).await?;
                let has_answer = made.is_some();
                if let Some(sandbox) = made {
                    let promise = if brief { Promise::Until(until) } else { Promise::Lives };
                    own.insert(sandboxo_tests::id(&sandbox)?, Known { sandbox, promise });
                }
                ("create", has_answer)
            }
            (4..7, Some(id)) => {
                let known = own.get_mut(id).context("it is its own")?;
                kill(&client, known).await?;
                ("kill", known.promise == Promise::Dead)
            }
            (7..9, Some(id)) => {
                let known = own.get_mut(id).context("it is its own")?;
                set_timeout(&client, known, LONG + step).await?;
                ("timeout", is_there(&client).await)
            }
            (9, _) if name.ends_with("w0") => {
                ("import", import(&client, &format!("{name}-{step}")).await?)
            }
            (10, Some(id)) => {
                let known = own.get(id).context("it is its own")?;
                let cycle = async {
                    let status = client.pause(&known.sandbox, true).await?;
                    anyhow::ensure!(status == 204, "a pause was answered with {status}");
                    usable(&client, &known.sandbox).await
                };
                match cycle.await {
                    Ok(()) => ("pause", true),
                    Err(error) if is_there(&client).await => bail!(error),
                    Err(_the_server_died) => ("pause", false),
                }
            }
            (_, Some(id)) => {
                let known = own.get(id).context("it is its own")?;
                match usable(&client, &known.sandbox).await {
                    Ok(()) => ("exec", true),
                    Err(error) if is_there(&client).await => bail!(error),
                    Err(_the_server_died) => ("exec", false),
                }
            }
            (_, None) => ("look", is_there(&client).await),
        };
        if !has_answer {
            break;
        }
        *deeds.entry(deed).or_default() += 1;
    }
    Ok((own, deeds))
}

async fn is_there(client: &Client) -> bool {
    client.running().await.is_ok()
}
