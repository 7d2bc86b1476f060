//! Numbers in few columns.

use transom_device::Access;

/// A number in four digits at most, with a decimal prefix: `0`, `999`, `12.3k`, `1.2M`.
pub(super) fn count(number: f64) -> String {
    scaled(number, 1000.0, &["", "k", "M", "G", "T", "P", "E"])
}

/// Bytes of memory, with a binary prefix: `64`, `4.0Ki`, `1.5Gi`.
pub(super) fn memory(bytes: f64) -> String {
    scaled(bytes, 1024.0, &["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"])
}

/// A time in nanoseconds: `512 ns`, `1.0 µs`, `33.6 ms`.
pub(super) fn time(nanoseconds: f64) -> String {
    if nanoseconds.is_infinite() {
        return "> 17 s".to_owned();
    }
    scaled(nanoseconds, 1000.0, &[" ns", " µs", " ms", " s"])
}

fn scaled(number: f64, step: f64, prefixes: &[&str]) -> String {
    let mut left = number.max(0.0);
    let mut prefix = 0;
    // 999.5 would be rounded up to a fourth digit.
    while left >= step - 0.5 && prefix + 1 < prefixes.len() {
        left /= step;
        prefix += 1;
    }
    let digits = match left {
        _ if prefix > 0 && left < 99.95 => 1,
        // Less than one a second is still something.
        _ if prefix == 0 && left > 0.0 && left < 9.95 && left.fract() != 0.0 => 1,
        _ => 0,
    };
    format!("{left:.digits$}{}", prefixes[prefix])
}

/// What peers may do: `RWA`, `R--`.
pub(super) fn rights(access: Access) -> String {
    let letters =
        [(Access::REMOTE_READ, 'R'), (Access::REMOTE_WRITE, 'W'), (Access::REMOTE_ATOMIC, 'A')];
    let letter = |(right, letter)| if access.contains(right) { letter } else { '-' };
    letters.into_iter().map(letter).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_take_few_columns() {
        for (number, said) in [
            (0.0, "0"),
            (0.5, "0.5"),
            (7.0, "7"),
            (999.4, "999"),
            (999.6, "1.0k"),
            (12_345.0, "12.3k"),
            (999_949.0, "1.0M"),
            (123_456.0, "123k"),
            (1.5e9, "1.5G"),
            (-3.0, "0"),
        ] {
            assert_eq!(count(number), said);
        }
        for (nanoseconds, said) in [
            (512.0, "512 ns"),
            (1024.0, "1.0 µs"),
            (33_554_432.0, "33.6 ms"),
            (17_179_869_184.0, "17.2 s"),
            (f64::INFINITY, "> 17 s"),
        ] {
            assert_eq!(time(nanoseconds), said);
        }
        for (bytes, said) in [
            (0, "0"),
            (64, "64"),
            (1023, "1023"),
            (4096, "4.0Ki"),
            (3 << 29, "1.5Gi"),
            (u64::MAX, "16.0Ei"),
        ] {
            assert_eq!(memory(bytes as f64), said);
        }
        let longest = (0..19).map(|zeros| count(9.96 * 10f64.powi(zeros)).len()).max();
        assert!(longest <= Some(5), "{longest:?}");
    }

    #[test]
    fn rights_are_letters() {
        assert_eq!(rights(Access::REMOTE), "RWA");
        assert_eq!(rights(Access::LOCAL_WRITE | Access::REMOTE_WRITE), "-W-");
    }
}
