//! Faults as text: `KEY=VALUE`, `KEY=VALUE`, … The first key decides the kind of fault.

use std::fmt;
use std::num::NonZeroU64;
use std::str::FromStr;

use transom_device::execution::Injection;
use transom_device::operation::{Operation, Subject};

use super::{
    Fault, Faults, Incident, IncidentKind, InjectionRule, MessageFate, MessageKind, MessageRule,
    NetworkFaults, Nth, PortOutage, Rate, Share, Time,
};

/// An error in the text of a fault, with the correct form.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct FaultError(String);

impl FaultError {
    /// A program has so many devices, and none of this number.
    pub(super) fn no_device(number: u8, count: usize) -> Self {
        let are = match count {
            ..=1 => "the program has one device, 0; give it more with --devices".to_owned(),
            _ => format!("the program has the devices 0 to {}", count - 1),
        };
        Self(format!("`device={number}`: {are}"))
    }
}

fn error<T>(message: impl fmt::Display) -> Result<T, FaultError> {
    Err(FaultError(message.to_string()))
}

/// All possible keys, for messages.
const NETWORK_KEYS: &str = "loss, delay, reorder, duplicate, corrupt, rate, seed";
const RULE_KEYS: &str = "nak, rnr, drop, with op and nth";
const OUTAGE_KEYS: &str = "port-down, with at and device";

const INCIDENT_KEYS: &str = "device-removal or address-change, with at and device";

const MESSAGE_KEYS: &str = "reject, drop or delay, with op=req, rep, rtu or dreq, and nth";

/// Every operation.
const ANY: &str = "any";

const NAKS: [(&str, Injection); 3] = [
    ("remote-access", Injection::RemoteAccess),
    ("invalid-request", Injection::InvalidRequest),
    ("remote-operational", Injection::RemoteOperational),
];

const MESSAGES: [(&str, MessageKind); 4] = [
    ("req", MessageKind::Req),
    ("rep", MessageKind::Rep),
    ("rtu", MessageKind::Rtu),
    ("dreq", MessageKind::Dreq),
];

const INCIDENTS: [(&str, IncidentKind); 2] = [
    ("device-removal", IncidentKind::DeviceRemoval),
    ("address-change", IncidentKind::AddressChange),
];

/// `KEY=VALUE`, or `KEY` alone.
struct Setting<'a> {
    whole: &'a str,
    key: &'a str,
    value: Option<&'a str>,
}

impl<'a> Setting<'a> {
    fn new(whole: &'a str) -> Self {
        match whole.split_once('=') {
            Some((key, value)) => Self { whole, key: key.trim(), value: Some(value.trim()) },
            None => Self { whole, key: whole, value: None },
        }
    }

    /// The value, as `parse` reads it. `allowed` describes the permitted values, for the message.
    fn value<T>(&self, allowed: &str, parse: impl Fn(&str) -> Option<T>) -> Result<T, FaultError> {
        match self.value {
            Some(value) => parse(value).map_or_else(
                || error(format_args!("`{}`: `{value}` is not {allowed}", self.whole)),
                Ok,
            ),
            None => error(format_args!("`{}` has no value; it needs {allowed}", self.whole)),
        }
    }

    /// Stores the value in its place, unless the place is taken.
    fn store<T>(
        &self,
        field: &mut Option<T>,
        allowed: &str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Result<(), FaultError> {
        let value = self.value(allowed, parse)?;
        match field.replace(value) {
            None => Ok(()),
            Some(_) => error(format_args!("`{}`: {} is given twice", self.whole, self.key)),
        }
    }

    fn unknown<T>(&self, kind: &str, keys: &str) -> Result<T, FaultError> {
        error(format_args!("`{}`: {kind} has no `{}`; it has {keys}", self.whole, self.key))
    }
}

const A_SHARE: &str = "a share from 0% to 100%, such as 1% or 0.5%";
const A_TIME: &str = "a time of at most a day, such as 2ms, 1.5s, 500us or 10ns";
const A_RATE: &str = "a rate up to 1000gbit, such as 100mbit, 1.5gbit or 64kbit";
const A_NAK: &str = "one of remote-access, invalid-request, remote-operational";
const AN_NTH: &str = "a number from 1 on, or one and all after it, such as 3 or 3..";
const A_REASON: &str = "the number of a reason, such as 28";
const A_MESSAGE: &str = "one of req, rep, rtu, dreq";
const A_SEED: &str = "a whole number";
const A_DEVICE: &str = "the number of a device, from 0";

impl FromStr for Fault {
    type Err = FaultError;

    fn from_str(text: &str) -> Result<Self, FaultError> {
        let settings: Vec<_> = text.split(',').map(|part| Setting::new(part.trim())).collect();
        if settings.iter().any(|setting| setting.key.is_empty()) {
            return error(format_args!(
                "`{text}`: there is nothing before, after or between commas; a fault is \
                 KEY=VALUE,..."
            ));
        }
        let has = |keys: &[&str]| settings.iter().any(|setting| keys.contains(&setting.key));
        let is_message = |setting: &Setting<'_>| {
            setting.key == "op" && setting.value.and_then(parse_message).is_some()
        };
        if has(&["reject"]) || settings.iter().any(is_message) {
            message(&settings).map(Self::Message)
        } else if has(&["nak", "rnr", "drop"]) {
            rule(&settings).map(Self::Rule)
        } else if has(&["port-down"]) {
            outage(&settings).map(Self::Outage)
        } else if has(&INCIDENTS.map(|(name, _)| name)) {
            incident(&settings).map(Self::Incident)
        } else if has(&["op", "nth"]) {
            error(format_args!(
                "`{text}` does not say what happens to the requests; add nak=..., rnr or drop"
            ))
        } else if has(&["at"]) {
            error(format_args!(
                "`{text}` does not say what happens then; add port-down=TIME, device-removal or \
                 address-change"
            ))
        } else {
            network(&settings).map(Self::Network)
        }
    }
}

fn network(settings: &[Setting<'_>]) -> Result<NetworkFaults, FaultError> {
    let mut faults = NetworkFaults::default();
    for setting in settings {
        match setting.key {
            "loss" => setting.store(&mut faults.loss, A_SHARE, Share::parse)?,
            "delay" => setting.store(&mut faults.delay, A_TIME, Time::parse)?,
            "reorder" => setting.store(&mut faults.reorder, A_SHARE, Share::parse)?,
            "duplicate" => setting.store(&mut faults.duplicate, A_SHARE, Share::parse)?,
            "corrupt" => setting.store(&mut faults.corrupt, A_SHARE, Share::parse)?,
            "rate" => setting.store(&mut faults.rate, A_RATE, Rate::parse)?,
            "seed" => setting.store(&mut faults.seed, A_SEED, |text| text.parse().ok())?,
            _ => {
                return error(format_args!(
                    "`{}`: there is no fault `{}`; there are {NETWORK_KEYS}; {RULE_KEYS}; \
                     {OUTAGE_KEYS}; {INCIDENT_KEYS}; and of connections {MESSAGE_KEYS}",
                    setting.whole, setting.key
                ));
            }
        }
    }
    Ok(faults)
}

fn rule(settings: &[Setting<'_>]) -> Result<InjectionRule, FaultError> {
    let (mut answer, mut operation, mut nth) = (None, None, None);
    for setting in settings {
        match setting.key {
            "nak" | "rnr" | "drop" if answer.is_some() => {
                return error(format_args!(
                    "`{}`: the answer is given already; a rule has one of nak, rnr, drop",
                    setting.whole
                ));
            }
            "nak" => setting.store(&mut answer, A_NAK, |text| named(&NAKS, text))?,
            "rnr" | "drop" if setting.value.is_some() => {
                return error(format_args!("`{}`: {} takes no value", setting.whole, setting.key));
            }
            "rnr" => answer = Some(Injection::NotReady),
            "drop" => answer = Some(Injection::Lost),
            "op" => setting.store(&mut operation, &an_operation(), parse_operation)?,
            "nth" => setting.store(&mut nth, AN_NTH, parse_nth)?,
            _ => return setting.unknown("a rule for requests", RULE_KEYS),
        }
    }
    let answer = answer.expect("the caller has seen one");
    let (operation, nth) = (operation.flatten(), nth.unwrap_or(Nth::ALL));
    Ok(InjectionRule { answer, operation, nth })
}

fn message(settings: &[Setting<'_>]) -> Result<MessageRule, FaultError> {
    let (mut fate, mut kind, mut nth) = (None, None, None);
    for setting in settings {
        match setting.key {
            "reject" | "drop" | "delay" if fate.is_some() => {
                return error(format_args!(
                    "`{}`: what becomes of the messages is said already; it is one of reject, drop, \
                     delay",
                    setting.whole
                ));
            }
            "reject" => {
                let reason = |text: &str| text.parse().ok().map(MessageFate::Refused);
                setting.store(&mut fate, A_REASON, reason)?;
            }
            "drop" if setting.value.is_some() => {
                return error(format_args!("`{}`: drop takes no value", setting.whole));
            }
            "drop" => fate = Some(MessageFate::Lost),
            "delay" => {
                let time = |text: &str| Time::parse(text).map(MessageFate::Late);
                setting.store(&mut fate, A_TIME, time)?;
            }
            "op" => setting.store(&mut kind, A_MESSAGE, parse_message)?,
            "nth" => setting.store(&mut nth, AN_NTH, parse_nth)?,
            _ => return setting.unknown("a rule for messages", MESSAGE_KEYS),
        }
    }
    let (Some(fate), nth) = (fate, nth.unwrap_or(Nth::ALL)) else {
        return error(format_args!("a message has no fate; it has {MESSAGE_KEYS}"));
    };
    let kind = kind.unwrap_or(MessageKind::Req);
    if matches!(fate, MessageFate::Refused(_)) && kind != MessageKind::Req {
        return error("only a REQ can be refused: reject goes with op=req");
    }
    Ok(MessageRule { fate, kind, nth })
}

fn parse_message(text: &str) -> Option<MessageKind> {
    named(&MESSAGES, text)
}

fn outage(settings: &[Setting<'_>]) -> Result<PortOutage, FaultError> {
    let (mut lasts, mut at, mut device) = (None, None, None);
    for setting in settings {
        match setting.key {
            "port-down" => setting.store(&mut lasts, A_TIME, Time::parse)?,
            "at" => setting.store(&mut at, A_TIME, Time::parse)?,
            "device" => setting.store(&mut device, A_DEVICE, |text| text.parse().ok())?,
            _ => return setting.unknown("port-down", OUTAGE_KEYS),
        }
    }
    let lasts = lasts.expect("the caller has seen it");
    Ok(PortOutage { lasts, at: at.unwrap_or_default(), device })
}

fn incident(settings: &[Setting<'_>]) -> Result<Incident, FaultError> {
    let (mut kind, mut at, mut device) = (None, None, None);
    for setting in settings {
        match (setting.key, named(&INCIDENTS, setting.key)) {
            ("at", _) => setting.store(&mut at, A_TIME, Time::parse)?,
            ("device", _) => setting.store(&mut device, A_DEVICE, |text| text.parse().ok())?,
            (_, None) => return setting.unknown("what happens to the device", INCIDENT_KEYS),
            (key, _) if setting.value.is_some() => {
                return error(format_args!("`{}`: {key} takes no value", setting.whole));
            }
            (_, found) if kind.is_none() => kind = found,
            _ => {
                return error(format_args!(
                    "`{}`: what happens is said already; it is one of device-removal, address-change",
                    setting.whole
                ));
            }
        }
    }
    let kind = kind.expect("the caller has seen it");
    let Some(at) = at else {
        let name = name_of(&INCIDENTS, &kind);
        return error(format_args!("`{name}` does not say when; add at=TIME"));
    };
    Ok(Incident { kind, at, device })
}

fn named<T: Copy>(table: &[(&str, T)], name: &str) -> Option<T> {
    table.iter().find(|(known, _)| *known == name).map(|(_, value)| *value)
}

fn name_of<T: PartialEq>(table: &'static [(&str, T)], value: &T) -> &'static str {
    table.iter().find(|(_, known)| known == value).map_or("", |(name, _)| name)
}

/// The operations that peers ask for, in the order of the table of operations. Those with a common label count as one.
fn operations() -> impl Iterator<Item = Operation> {
    let asked = |operation: &Operation| match operation.needs().subject {
        Subject::RemoteMemory | Subject::Receive => true,
        Subject::RemoteWindow
        | Subject::LocalSource
        | Subject::LocalDestination
        | Subject::Binding
        | Subject::LocalWindow => false,
    };
    let mut last = "";
    Operation::ALL.iter().copied().filter(asked).filter(move |operation| {
        operation.needs().label != std::mem::replace(&mut last, operation.needs().label)
    })
}

/// The label as a fault has it, with hyphens.
fn label(operation: Operation) -> String {
    operation.needs().label.replace('_', "-")
}

fn an_operation() -> String {
    let labels: Vec<_> = std::iter::once(ANY.to_owned()).chain(operations().map(label)).collect();
    format!("one of {}", labels.join(", "))
}

fn parse_operation(text: &str) -> Option<Option<Operation>> {
    if text == ANY {
        return Some(None);
    }
    operations().find(|operation| label(*operation) == text).map(Some)
}

fn parse_nth(text: &str) -> Option<Nth> {
    let number = |digits: &str| digits.parse::<NonZeroU64>().ok();
    match text.strip_suffix("..") {
        Some(first) => number(first).map(Nth::From),
        None => number(text).map(Nth::Only),
    }
}

impl NetworkFaults {
    /// Adds the settings of another piece. It is an error if both set the same thing.
    pub(super) fn add(&mut self, more: &Self) -> Result<(), FaultError> {
        fn add<T: Copy>(
            key: &str,
            field: &mut Option<T>,
            more: Option<T>,
        ) -> Result<(), FaultError> {
            match (&field, more) {
                (Some(_), Some(_)) => error(format_args!("{key} is given twice")),
                (None, Some(_)) => {
                    *field = more;
                    Ok(())
                }
                (_, None) => Ok(()),
            }
        }
        add("loss", &mut self.loss, more.loss)?;
        add("delay", &mut self.delay, more.delay)?;
        add("reorder", &mut self.reorder, more.reorder)?;
        add("duplicate", &mut self.duplicate, more.duplicate)?;
        add("corrupt", &mut self.corrupt, more.corrupt)?;
        add("rate", &mut self.rate, more.rate)?;
        add("seed", &mut self.seed, more.seed)
    }

    /// Checks that all pieces together contain at least one fault.
    pub(super) fn check(&self) -> Result<(), FaultError> {
        match self.seed {
            Some(seed) if *self == (Self { seed: self.seed, ..Self::default() }) => {
                error(format_args!(
                    "`seed={seed}` does nothing alone; add what it is for, such as loss=1%"
                ))
            }
            _ => Ok(()),
        }
    }
}

impl fmt::Display for NetworkFaults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let settings = [
            self.loss.map(|share| format!("loss={share}")),
            self.delay.map(|time| format!("delay={time}")),
            self.reorder.map(|share| format!("reorder={share}")),
            self.duplicate.map(|share| format!("duplicate={share}")),
            self.corrupt.map(|share| format!("corrupt={share}")),
            self.rate.map(|rate| format!("rate={rate}")),
            self.seed.map(|seed| format!("seed={seed}")),
        ];
        f.write_str(&settings.into_iter().flatten().collect::<Vec<_>>().join(","))
    }
}

impl fmt::Display for Nth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Only(nth) => write!(f, "{nth}"),
            Self::From(first) => write!(f, "{first}.."),
        }
    }
}

impl fmt::Display for InjectionRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.answer {
            Injection::NotReady => f.write_str("rnr")?,
            Injection::Lost => f.write_str("drop")?,
            nak => write!(f, "nak={}", name_of(&NAKS, &nak))?,
        }
        let operation = self.operation.map_or_else(|| ANY.to_owned(), label);
        write!(f, ",op={operation},nth={}", self.nth)
    }
}

impl fmt::Display for MessageRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.fate {
            MessageFate::Refused(reason) => write!(f, "reject={reason}")?,
            MessageFate::Lost => f.write_str("drop")?,
            MessageFate::Late(time) => write!(f, "delay={time}")?,
        }
        write!(f, ",op={},nth={}", name_of(&MESSAGES, &self.kind), self.nth)
    }
}

/// The device that a fault is for, if it is not for all.
struct Only(Option<u8>);

impl fmt::Display for Only {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |device| write!(f, ",device={device}"))
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Network(network) => network.fmt(f),
            Self::Rule(rule) => rule.fmt(f),
            Self::Message(message) => message.fmt(f),
            Self::Outage(PortOutage { lasts, at, device }) => {
                write!(f, "port-down={lasts},at={at}{}", Only(*device))
            }
            Self::Incident(Incident { kind, at, device }) => {
                write!(f, "{},at={at}{}", name_of(&INCIDENTS, kind), Only(*device))
            }
        }
    }
}

impl FromStr for Faults {
    type Err = FaultError;

    /// Faults with `;` between them, as the variable `TRANSOM_FAULT` has them.
    fn from_str(text: &str) -> Result<Self, FaultError> {
        let faults: Result<Vec<Fault>, _> = text.split(';').map(str::parse).collect();
        Self::new(faults?)
    }
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let network = self.network.map(Fault::Network);
        let rules = self.rules.iter().copied().map(Fault::Rule);
        let outages = self.outages.iter().copied().map(Fault::Outage);
        let messages = self.messages.iter().copied().map(Fault::Message);
        let incidents = self.incidents.iter().copied().map(Fault::Incident);
        let faults = network.into_iter().chain(rules).chain(outages);
        let faults = faults.chain(messages).chain(incidents);
        f.write_str(&faults.map(|fault| fault.to_string()).collect::<Vec<_>>().join(";"))
    }
}

#[cfg(test)]
mod tests;
