//! Fewer of a long row, evenly: an answer has a bound, and its last value is the newest one.

pub fn thin<T>(rows: Vec<T>, most: usize) -> Vec<T> {
    let count = rows.len();
    if count <= most {
        return rows;
    }
    let step = count.div_ceil(most.max(1));
    // Counted from the end.
    rows.into_iter()
        .enumerate()
        .filter(|(at, _)| (count - 1 - at).is_multiple_of(step))
        .map(|(_, row)| row)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table() {
        for (count, most, expected) in [
            (0, 3, &[][..]),
            (3, 3, &[0, 1, 2]),
            (4, 3, &[1, 3]),
            (9, 3, &[2, 5, 8]),
            (10, 3, &[1, 5, 9]),
            (2, 1, &[1]),
        ] {
            assert_eq!(thin((0..count).collect(), most), expected, "{most} of {count}");
        }
    }
}
