//! Objects as `rdma` prints them: a line of keys and values for each, or an object of JSON.

use super::PORT;
use serde::ser::{Serialize, SerializeMap, Serializer};
use std::fmt::Write;
use std::net::SocketAddr;

/// A value. JSON and text differ in how they show it, and filters in how they compare it.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    Number(u64),
    /// In hexadecimal.
    Hex(u64),
    Text(String),
    Address(SocketAddr),
    /// On or off.
    Switch(bool),
    /// Numbers in their order. Those that follow each other are shown as the first and the last.
    Numbers(Vec<u32>),
    /// A counter, on a line of its own.
    Counter(u64),
    /// The queue pairs that a counter belongs to, on a line of their own.
    CountedFor(u32),
}

/// Where an object is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Place {
    Port,
    /// At no port yet.
    NoPort,
    Device,
}

/// An object.
#[derive(Clone, Debug)]
pub(super) struct Row {
    index: u8,
    device: String,
    place: Place,
    pub(super) fields: Vec<(&'static str, Value)>,
}

impl Row {
    pub(super) fn new(
        (index, device): (u8, &str),
        place: Place,
        fields: impl IntoIterator<Item = (&'static str, Value)>,
    ) -> Self {
        Self { index, device: device.to_owned(), place, fields: fields.into_iter().collect() }
    }

    /// As text: a space follows each field, even the last. `end` ends the lines inside.
    pub(super) fn line(&self, end: char) -> String {
        let device = &self.device;
        let mut line = match self.place {
            Place::Port => format!("link {device}/{PORT} "),
            Place::NoPort => format!("link {device}/- "),
            Place::Device => format!("dev {device} "),
        };
        for (key, value) in &self.fields {
            let _ = match value {
                Value::Number(number) => write!(line, "{key} {number} "),
                Value::Hex(number) => write!(line, "{key} {number:#x} "),
                Value::Text(text) => write!(line, "{key} {text} "),
                Value::Address(address) => {
                    write!(line, "{key} {}:{} ", address.ip(), address.port())
                }
                Value::Switch(on) => write!(line, "{key} {} ", if *on { "on" } else { "off" }),
                Value::Numbers(numbers) => write!(line, "{key} {} ", ranges(numbers).join(",")),
                Value::Counter(count) => write!(line, "{end}    {key} {count} "),
                Value::CountedFor(number) => write!(line, "{end}    LQPN: <{number}>"),
            };
        }
        line
    }

    fn get(&self, key: &str) -> Option<&Value> {
        self.fields.iter().find(|(name, _)| *name == key).map(|(_, value)| value)
    }
}

impl Serialize for Row {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("ifindex", &self.index)?;
        map.serialize_entry("ifname", &self.device)?;
        if self.place == Place::Port {
            map.serialize_entry("port", &PORT)?;
        }
        for (key, value) in &self.fields {
            match value {
                Value::Number(number) | Value::Counter(number) => {
                    map.serialize_entry(key, number)?;
                }
                Value::Hex(number) => map.serialize_entry(key, &format!("{number:x}"))?,
                Value::Text(text) => map.serialize_entry(key, text)?,
                Value::Address(address) => {
                    map.serialize_entry(key, &format!("{}:{}", address.ip(), address.port()))?;
                }
                Value::Switch(on) => map.serialize_entry(key, on)?,
                Value::Numbers(numbers) => map.serialize_entry(key, &ranges(numbers))?,
                Value::CountedFor(number) => map.serialize_entry(key, &[number])?,
            }
        }
        map.end()
    }
}

/// As `2-4` what follows each other.
fn ranges(numbers: &[u32]) -> Vec<String> {
    let follow = |one: &u32, next: &u32| one.checked_add(1) == Some(*next);
    let range = |range: &[u32]| match range {
        [first, .., last] => format!("{first}-{last}"),
        all => all.iter().map(u32::to_string).collect(),
    };
    numbers.chunk_by(follow).map(range).collect()
}

/// A key, and the values that an object has to have one of.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Filter {
    key: &'static str,
    values: String,
}

impl Filter {
    /// `None` if there is no such key, or the values are not of its kind.
    pub(super) fn new(keys: &[&'static str], key: &str, values: &str) -> Option<Self> {
        let key = keys.iter().find(|it| !key.is_empty() && it.starts_with(key))?;
        let digits = values.chars().all(|it| it.is_ascii_digit() || it == ',' || it == '-');
        let fits = digits || TEXTS.contains(key);
        (fits && !values.is_empty()).then(|| Self { key, values: values.to_owned() })
    }

    /// Whether an object has one of the values. One without the key has none.
    pub(super) fn lets(&self, row: &Row) -> bool {
        let address = |end: &str| {
            let key = self.key.strip_suffix(end)?;
            match row.get(&format!("{key}-addr")) {
                Some(Value::Address(address)) => Some(address),
                _ => None,
            }
        };
        if let Some(address) = address("-port") {
            return self.has_number(address.port().into());
        }
        if let Some(address) = address("-addr") {
            return self.has_text(&address.ip().to_string());
        }
        match row.get(self.key) {
            None | Some(Value::Address(_) | Value::Switch(_)) => false,
            Some(Value::Number(number) | Value::Hex(number) | Value::Counter(number)) => {
                self.has_number(*number)
            }
            Some(Value::Text(text)) => self.has_text(text),
            Some(Value::Numbers(numbers)) => {
                numbers.iter().any(|number| self.has_number((*number).into()))
            }
            Some(Value::CountedFor(number)) => self.has_number((*number).into()),
        }
    }

    fn has_text(&self, text: &str) -> bool {
        self.values.split(',').any(|value| value.eq_ignore_ascii_case(text))
    }

    /// Numbers and ranges, separated by commas.
    fn has_number(&self, number: u64) -> bool {
        self.values.split(',').any(|value| {
            let (first, last) = value.split_once('-').unwrap_or((value, value));
            let [first, last] = [first, last].map(|it| it.parse::<u64>());
            matches!((first, last), (Ok(first), Ok(last)) if (first..=last).contains(&number))
        })
    }
}

/// The keys whose values are not numbers.
const TEXTS: [&str; 9] = [
    "type",
    "state",
    "path-mig-state",
    "qp-type",
    "ps",
    "src-addr",
    "dst-addr",
    "comm",
    "poll-ctx",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn row() -> Row {
        let fields = [
            ("lqpn", Value::Number(17)),
            ("state", Value::Text("RTS".into())),
            ("rkey", Value::Hex(0x2a)),
            ("src-addr", Value::Address("[::1]:7471".parse().expect("an address"))),
        ];
        Row::new((0, "rxe0"), Place::Port, fields)
    }

    #[test]
    fn text_and_json_have_iproute2s_form() {
        assert_eq!(row().line('\n'), "link rxe0/1 lqpn 17 state RTS rkey 0x2a src-addr ::1:7471 ");
        assert_eq!(
            serde_json::to_string(&row()).expect("it is text"),
            r#"{"ifindex":0,"ifname":"rxe0","port":1,"lqpn":17,"state":"RTS","rkey":"2a","src-addr":"::1:7471"}"#
        );
        let others = [
            ("moderated", Value::Switch(false)),
            ("lqpn", Value::Numbers(vec![3, 7, 8, 9, 12, 13])),
        ];
        let others = Row::new((0, "rxe0"), Place::Device, others);
        assert_eq!(others.line('\n'), "dev rxe0 moderated off lqpn 3,7-9,12-13 ");
        assert_eq!(
            serde_json::to_string(&others).expect("it is text"),
            r#"{"ifindex":0,"ifname":"rxe0","moderated":false,"lqpn":["3","7-9","12-13"]}"#
        );
        let counters = [("sent", Value::Counter(3)), ("lqpn", Value::CountedFor(17))];
        let counters = Row::new((0, "rxe0"), Place::NoPort, counters);
        assert_eq!(counters.line('\\'), "link rxe0/- \\    sent 3 \\    LQPN: <17>");
        assert_eq!(
            serde_json::to_string(&counters).expect("it is text"),
            r#"{"ifindex":0,"ifname":"rxe0","sent":3,"lqpn":[17]}"#
        );
    }

    #[test]
    fn filters_compare_numbers_ranges_and_text() {
        let keys = ["lqpn", "state", "src-addr", "src-port", "pid"];
        let lets = |key, values| Filter::new(&keys, key, values).map(|it| it.lets(&row()));
        for (key, values, expected) in [
            ("lqpn", "17", Some(true)),
            ("lq", "1,17", Some(true)),
            ("lqpn", "10-20", Some(true)),
            ("lqpn", "18-20", Some(false)),
            ("state", "rts,err", Some(true)),
            ("state", "RTR", Some(false)),
            ("src-addr", "::1", Some(true)),
            ("src-port", "7471", Some(true)),
            ("src-port", "7472", Some(false)),
            ("pid", "1", Some(false)),
            ("lqpn", "RTS", None),
            ("wrong", "1", None),
            ("lqpn", "", None),
        ] {
            assert_eq!(lets(key, values), expected, "{key} {values}");
        }
    }
}
