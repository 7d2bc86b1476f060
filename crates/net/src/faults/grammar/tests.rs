//! Faults as text, there and back.

use proptest::prelude::*;

use super::*;

fn complaint(text: &str) -> String {
    match text.parse::<Fault>() {
        Ok(fault) => panic!("{text} is {fault:?}"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn the_network_is_described() {
    let fault = "loss=1%, delay=2ms,reorder=5%,duplicate=0.5%,corrupt=0.0001%,rate=1.5gbit,seed=7";
    let share = Share::from_millionths;
    let network = NetworkFaults {
        loss: share(10_000),
        delay: Time::from_nanoseconds(2_000_000),
        reorder: share(50_000),
        duplicate: share(5_000),
        corrupt: share(1),
        rate: Rate::from_bits(1_500_000_000),
        seed: Some(7),
    };
    assert_eq!(fault.parse(), Ok(Fault::Network(network)));
    let printed = Fault::Network(network).to_string();
    assert_eq!(printed, fault.replace(' ', ""));
}

#[test]
fn fates_of_messages_are_described() {
    let time = Time::from_nanoseconds(3_000_000_000).unwrap();
    let first = Nth::Only(NonZeroU64::new(1).unwrap());
    for (text, fate, kind, nth) in [
        ("reject=28,nth=1", MessageFate::Refused(28), MessageKind::Req, first),
        ("drop,op=rtu", MessageFate::Lost, MessageKind::Rtu, Nth::ALL),
        ("op=rep,delay=3s", MessageFate::Late(time), MessageKind::Rep, Nth::ALL),
    ] {
        let fault = Fault::Message(MessageRule { fate, kind, nth });
        assert_eq!(text.parse(), Ok(fault), "{text}");
        assert_eq!(fault.to_string().parse(), Ok(fault), "{text}");
    }
    assert!(complaint("reject=28,op=rtu").contains("op=req"));
    assert!(complaint("reject=no").contains("such as 28"));
    assert!(complaint("op=dreq").contains("reject, drop or delay"));
    assert!(complaint("reject=28,drop").contains("one of reject, drop, delay"));
}

#[test]
fn rules_are_described() {
    let nth = |number| NonZeroU64::new(number).unwrap();
    for (text, answer, operation, when) in [
        (
            "nak=remote-access,op=read,nth=3",
            Injection::RemoteAccess,
            Some(Operation::Read),
            Nth::Only(nth(3)),
        ),
        ("op=any,drop", Injection::Lost, None, Nth::ALL),
        ("rnr,nth=2..,op=send", Injection::NotReady, Some(Operation::Send), Nth::From(nth(2))),
        (
            "nak=invalid-request,op=atomic-write",
            Injection::InvalidRequest,
            Some(Operation::AtomicWrite),
            Nth::ALL,
        ),
    ] {
        let rule = InjectionRule { answer, operation, nth: when };
        assert_eq!(text.parse(), Ok(Fault::Rule(rule)), "{text}");
    }
    let outage = |lasts, at| {
        let time = |seconds: u64| Time::from_nanoseconds(seconds * 1_000_000_000).unwrap();
        Fault::Outage(PortOutage { lasts: time(lasts), at: time(at), device: None })
    };
    assert_eq!("port-down=2s,at=5s".parse(), Ok(outage(2, 5)));
    assert_eq!("port-down=1s".parse(), Ok(outage(1, 0)));
    let at = Time::from_nanoseconds(2_000_000).unwrap();
    for (text, kind) in [
        ("device-removal,at=2ms", IncidentKind::DeviceRemoval),
        ("at=2ms,address-change", IncidentKind::AddressChange),
    ] {
        assert_eq!(
            text.parse(),
            Ok(Fault::Incident(Incident { kind, at, device: None })),
            "{text}"
        );
    }
}

#[test]
fn mistakes_are_named_with_what_would_be_right() {
    for (text, words) in [
        ("", "`` there is nothing KEY=VALUE"),
        ("loss=1%,", "nothing before, after or between commas"),
        ("loss=1", "`loss=1`: `1` is not a share 0.5%"),
        ("loss=101%", "from 0% to 100%"),
        ("loss", "`loss` has no value a share"),
        ("delay=2", "`2` is not a time 2ms"),
        ("delay=2 ms", "`2 ms` is not a time"),
        ("rate=fast", "`fast` is not a rate 100mbit"),
        ("rate=0bit", "not a rate"),
        ("seed=-1", "`-1` is not a whole number"),
        ("loss=1%,loss=2%", "`loss=2%`: loss is given twice"),
        ("los=1%", "there is no fault `los`; there are loss, delay port-down, with at"),
        ("nak=no", "`no` is not one of remote-access, invalid-request, remote-operational"),
        ("nak", "has no value; it needs one of remote-access"),
        ("nak=remote-access,drop", "`drop`: the answer is given already"),
        ("rnr=5", "`rnr=5`: rnr takes no value"),
        ("drop,op=bind", "`bind` is not one of any, send, write, read"),
        ("drop,nth=0", "`0` is not a number from 1 on"),
        ("drop,nth=2..3", "3 or 3.."),
        ("drop,loss=1%", "a rule for requests has no `loss`; it has nak, rnr, drop"),
        ("op=read,nth=3", "does not say what happens to the requests; add nak=..., rnr or drop"),
        ("at=5s", "does not say what happens then; add port-down=TIME, device-removal or"),
        ("device-removal", "`device-removal` does not say when; add at=TIME"),
        ("device-removal=5s", "device-removal takes no value"),
        ("device-removal,nth=1", "has no `nth`; it has device-removal or address-change, with at"),
        ("device-removal,address-change,at=5s", "is said already"),
        ("port-down=2s,nth=1", "port-down has no `nth`; it has port-down, with at"),
        ("port-down=2s,at=5s,at=6s", "at is given twice"),
    ] {
        let said = complaint(text);
        let mut rest = said.as_str();
        // Each word must stand there, in this order.
        for word in words.split(' ') {
            let at = rest.find(word).unwrap_or_else(|| panic!("{text}: {said:?} has no {word:?}"));
            rest = &rest[at + word.len()..];
        }
    }
}

#[test]
fn several_faults_add_up() {
    let all: Faults =
        "loss=1%;drop,op=read,nth=1;delay=1ms;port-down=2s;port-down=1s,at=9s".parse().unwrap();
    let network = all.network.unwrap();
    assert_eq!((network.loss, network.delay), (Share::parse("1%"), Time::parse("1ms")));
    assert_eq!((all.rules.len(), all.outages.len()), (1, 2));
    let twice = "loss=1%;loss=2%".parse::<Faults>();
    assert_eq!(twice.unwrap_err().to_string(), "loss is given twice");
}

fn shares() -> impl Strategy<Value = Option<Share>> {
    prop::option::of((0..=Share::WHOLE).prop_map(|value| Share::from_millionths(value).unwrap()))
}

fn times() -> impl Strategy<Value = Time> {
    let whole = (0..=86_400_u64).prop_map(|seconds| seconds * 1_000_000_000);
    let any = 0..=Time::LONGEST.nanoseconds();
    prop_oneof![whole, any].prop_map(|value| Time::from_nanoseconds(value).unwrap())
}

fn networks() -> impl Strategy<Value = NetworkFaults> {
    let rates = (1..=Rate::HIGHEST.bits()).prop_map(|value| Rate::from_bits(value).unwrap());
    let seeds = any::<Option<u64>>();
    let options = (prop::option::of(times()), prop::option::of(rates), seeds);
    let something = |faults: &NetworkFaults| {
        NetworkFaults { seed: None, ..*faults } != NetworkFaults::default()
    };
    (shares(), shares(), shares(), shares(), options)
        .prop_map(|(loss, reorder, duplicate, corrupt, (delay, rate, seed))| NetworkFaults {
            loss,
            delay,
            reorder,
            duplicate,
            corrupt,
            rate,
            seed,
        })
        .prop_filter("a fault says something", something)
}

fn rules() -> impl Strategy<Value = InjectionRule> {
    let answers = prop::sample::select(vec![
        Injection::RemoteAccess,
        Injection::InvalidRequest,
        Injection::RemoteOperational,
        Injection::NotReady,
        Injection::Lost,
    ]);
    let operations = std::iter::once(None).chain(operations().map(Some));
    let operations = prop::sample::select(operations.collect::<Vec<_>>());
    let nth = (any::<NonZeroU64>(), any::<bool>())
        .prop_map(|(nth, only)| if only { Nth::Only(nth) } else { Nth::From(nth) });
    (answers, operations, nth).prop_map(|(answer, operation, nth)| InjectionRule {
        answer,
        operation,
        nth,
    })
}

fn outages() -> impl Strategy<Value = PortOutage> {
    (times(), times(), any::<Option<u8>>()).prop_map(|(lasts, at, device)| PortOutage {
        lasts,
        at,
        device,
    })
}

fn messages() -> impl Strategy<Value = MessageRule> {
    let kinds = MESSAGES.map(|(_, kind)| kind);
    let fates = prop_oneof![
        (any::<u16>(), Just(MessageKind::Req))
            .prop_map(|(reason, kind)| (MessageFate::Refused(reason), kind)),
        prop::sample::select(kinds.to_vec()).prop_map(|kind| (MessageFate::Lost, kind)),
        (times(), prop::sample::select(kinds.to_vec()))
            .prop_map(|(time, kind)| (MessageFate::Late(time), kind)),
    ];
    let nth = any::<NonZeroU64>().prop_map(Nth::Only);
    (fates, nth).prop_map(|((fate, kind), nth)| MessageRule { fate, kind, nth })
}

fn incidents() -> impl Strategy<Value = Incident> {
    let kinds = prop::sample::select(INCIDENTS.map(|(_, kind)| kind).to_vec());
    (kinds, times(), any::<Option<u8>>()).prop_map(|(kind, at, device)| Incident {
        kind,
        at,
        device,
    })
}

proptest! {
    #[test]
    fn what_is_printed_reads_back(
        network in prop::option::of(networks()),
        rules in prop::collection::vec(rules(), 0..3),
        outages in prop::collection::vec(outages(), 0..3),
        messages in prop::collection::vec(messages(), 0..3),
        incidents in prop::collection::vec(incidents(), 0..3),
    ) {
        let faults = Faults { network, rules, outages, messages, incidents };
        prop_assume!(!faults.is_empty());
        prop_assert_eq!(faults.to_string().parse::<Faults>(), Ok(faults));
    }

    #[test]
    fn any_text_is_read_or_refused(text in "[a-z=.,;%0-9 -]{0,40}") {
        if let Ok(faults) = text.parse::<Faults>() {
            prop_assert_eq!(faults.to_string().parse::<Faults>(), Ok(faults));
        }
    }
}

/// Each operation that peers may ask for has a word, and both atomics share one.
#[test]
fn operations_are_named_as_they_were() {
    assert_eq!(an_operation(), "one of any, send, write, read, atomic, atomic-write, flush");
}
