//! `rdma resource show` and `rdma statistic qp`, of a program with known objects.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use serde_json::Value;
use transom_conformance::c_programs::compile;
use transom_conformance::harness::{End, open_adapter, until};
use transom_conformance::path_of;
use transom_conformance::processes::{Scratch, Way, alone, interfaces_up};
use transom_conformance::programs::command;
use transom_conformance::watching::{counters, grown};
use transom_host::Options;

/// What `rdma` says under `transom run`.
fn told(words: &str) -> String {
    let mut transom = Command::new(&command()[0]);
    let words = words.split_whitespace();
    let output = transom.args(["run", "--", "rdma"]).args(words).output().expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

/// The same as JSON.
fn asked(words: &str) -> Vec<Value> {
    serde_json::from_str(&told(&format!("-j {words}"))).expect("JSON")
}

/// The objects with these values.
fn with<'a>(objects: &'a [Value], key: &str, value: impl Into<Value>) -> Vec<&'a Value> {
    let value = value.into();
    objects.iter().filter(|it| it[key] == value).collect()
}

/// What `rdma -j` of iproute2 6.1 has shown of rxe of Linux 6.1: an object of each kind, of each form that programs get.
const LINUX: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/programs/rxe-rdma.json"));

/// The keys of an object, each with what its value is.
fn keys(object: &Value) -> BTreeSet<(&str, String)> {
    fn kind(value: &Value) -> String {
        match value {
            Value::Null => "null".into(),
            Value::Bool(_) => "boolean".into(),
            Value::Number(_) => "number".into(),
            Value::String(_) => "text".into(),
            Value::Array(all) => all.iter().map(|it| format!("[{}]", kind(it))).collect(),
            Value::Object(_) => "object".into(),
        }
    }
    let fields = object.as_object().expect("an object").iter();
    fields.map(|(key, value)| (key.as_str(), kind(value))).collect()
}

/// An object has the keys of each of Linux's objects of this kind and state, and these more.
#[track_caller]
fn is_as_on_linux(kind: &str, object: &Value, more: &[(&str, &str)]) {
    let all: Value = serde_json::from_str(LINUX).expect("JSON");
    let same = |it: &&Value| it["state"] == object["state"];
    let all = all[kind].as_array().expect("a list").iter().filter(same);
    let mut linux = all.map(keys).collect::<Vec<_>>();
    for keys in &mut linux {
        keys.extend(more.iter().map(|(key, kind)| (*key, (*kind).to_owned())));
    }
    assert!(!linux.is_empty(), "{object}");
    assert_eq!(linux, vec![keys(object); linux.len()], "{kind}");
}

fn known_objects() {
    let scratch = Scratch::new("resources");
    let before = counters();
    let known = compile(&scratch, "known.c", "known", &["-libverbs"]);
    let mut run = Command::new(&command()[0]);
    run.args(["run", "--"]).arg(known).arg("3");
    let mut child = run.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it runs");
    let pid = u64::from(child.id());
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    let mut next = || lines.next().expect("a line").expect("text");
    let facts: BTreeMap<String, u64> = serde_json::from_str(&next()).expect("JSON");
    assert_eq!(next(), "done");

    let pairs = asked("resource show qp");
    is_as_on_linux("qp", &pairs[0], &[]);
    for kind in ["cq", "pd", "ctx", "srq"] {
        let objects = asked(&format!("resource show {kind}"));
        objects.iter().for_each(|object| is_as_on_linux(kind, object, &[]));
    }
    let region = &asked("resource show mr")[0];
    is_as_on_linux("mr", region, &[("iova", "text")]);
    is_as_on_linux("resource", &asked("resource")[0], &[]);
    // There are more counters here. One of rxe has no meaning.
    let ports: Value = serde_json::from_str(LINUX).expect("JSON");
    let port = &asked("statistic show link")[0];
    let mut linux = keys(&ports["statistic"][0]);
    assert!(linux.remove(&("ack_deferred", "number".to_owned())));
    assert!(linux.is_subset(&keys(port)), "{port}");
    is_as_on_linux("statistic qp mode", &asked("statistic qp mode")[0], &[]);
    let (rc, ud) = (facts["qp"], facts["ud"]);
    let domain = pairs[0]["pdn"].clone();
    let expected = serde_json::json!([
        {
            "ifindex": 0, "ifname": "transom0", "port": 1, "lqpn": rc, "rqpn": rc, "type": "RC",
            "state": "RTS", "rq-psn": 0, "sq-psn": 0, "path-mig-state": "MIGRATED",
            "pdn": domain, "pid": pid, "comm": "known",
        },
        {
            "ifindex": 0, "ifname": "transom0", "lqpn": ud, "type": "UD", "state": "RESET",
            "sq-psn": 0, "pdn": domain, "pid": pid, "comm": "known",
        },
    ]);
    assert_eq!(Value::from(pairs), expected);
    let line = told(&format!("resource show qp link transom0/1 lqpn {rc}"));
    assert_eq!(
        line,
        format!(
            "link transom0/1 lqpn {rc} rqpn {rc} type RC state RTS rq-psn 0 sq-psn 0 \
             path-mig-state MIGRATED pdn {domain} pid {pid} comm known \n"
        )
    );
    assert!(told("resource show qp state rtr").is_empty());

    let regions = asked("resource show mr");
    let [region] = &regions[..] else { panic!("{regions:?}") };
    for (key, value) in [("rkey", facts["rkey"]), ("lkey", facts["lkey"]), ("iova", facts["iova"])]
    {
        assert_eq!(region[key], format!("{value:x}"), "{region}");
    }
    assert_eq!((&region["mrlen"], &region["pdn"]), (&8192.into(), &domain));
    let line = told("resource show mr dev transom0 mrlen 8192");
    assert!(line.starts_with("dev transom0 mrn "), "{line}");
    assert!(line.contains(&format!(" rkey {:#x} ", facts["rkey"])), "{line}");

    let windows = asked("resource show mw");
    assert_eq!(with(&windows, "state", "FREE").len(), 1, "{windows:?}");
    let bound = with(&windows, "state", "BOUND");
    let [bound] = bound[..] else { panic!("{windows:?}") };
    let expected = serde_json::json!({
        "ifindex": 0, "ifname": "transom0", "mwn": bound["mwn"], "type": bound["type"],
        "state": "BOUND", "rkey": format!("{:x}", facts["window"]),
        "iova": format!("{:x}", facts["iova"] + 8192 - 64), "mwlen": 64, "lqpn": rc,
        "pdn": domain, "pid": pid, "comm": "known",
    });
    assert_eq!(*bound, expected);
    assert!(["2A", "2B"].map(Value::from).contains(&bound["type"]), "{bound}");
    let line = told(&format!("resource show mw lqpn {rc}"));
    let key = format!(" state BOUND rkey {:#x} iova ", facts["window"]);
    assert!(line.lines().count() == 1 && line.contains(&key), "{line}");
    // Details are those of drivers in the kernel, and there is none.
    for kind in ["qp", "mr", "mw", "cq", "pd", "ctx", "srq", "cm_id"] {
        let objects = asked(&format!("resource show {kind}"));
        assert_eq!(asked(&format!("-d resource show {kind}")), objects, "{kind}");
    }
    // Two of its own queue, and one of the datagrams' each.
    let queues = asked("resource show cq");
    assert_eq!(with(&queues, "users", 4).len(), 1, "{queues:?}");
    assert_eq!(with(&queues, "users", 4)[0]["cqe"], facts["cqe"]);
    assert_eq!(with(&queues, "users", 0).len(), 1, "{queues:?}");
    // A region, two windows, a shared queue and two queue pairs.
    let domains = asked("resource show pd");
    assert_eq!(with(&domains, "users", 6).len(), 1, "{domains:?}");
    assert_eq!(with(&domains, "users", 6)[0]["pdn"], domain);
    assert_eq!(with(&domains, "users", 0).len(), 1, "{domains:?}");
    let contexts = asked("resource show ctx");
    assert_eq!(contexts.len(), 1);
    for objects in [&queues, &domains] {
        let all = objects.iter().all(|it| it["ctxn"] == contexts[0]["ctxn"]);
        assert!(all, "{objects:?} {contexts:?}");
    }
    let line = told("resource show cq users 4");
    assert!(line.contains(" users 4 adaptive-moderation off ctxn "), "{line}");
    let shared = asked("resource show srq");
    assert_eq!(shared.len(), 1, "{shared:?}");
    assert_eq!((&shared[0]["type"], &shared[0]["pdn"]), (&"BASIC".into(), &domain));
    assert_eq!(shared[0]["lqpn"], serde_json::json!([ud.to_string()]));

    let counts = asked(&format!("statistic qp show link transom0/1 lqpn {rc}"));
    let [counts] = &counts[..] else { panic!("{counts:?}") };
    assert_eq!((&counts["rx_read_requests"], &counts["rdma_sends"]), (&3.into(), &0.into()));
    assert_eq!(counts["lqpn"], serde_json::json!([rc]));
    // Nobody else has counted anything.
    let grown = grown(&before, &counters());
    let of_pair = counts.as_object().expect("an object").iter();
    let of_pair = of_pair.filter(|(name, _)| before.contains_key(&format!("hw/{name}")));
    let of_pair: Vec<_> = of_pair.collect();
    assert!(of_pair.len() > 20, "{counts}");
    for (name, count) in of_pair {
        let of_port = grown.get(&format!("hw/{name}")).copied().unwrap_or_default();
        assert_eq!(*count, of_port, "{name} in {grown:?}");
    }
    let text = told(&format!("statistic qp show lqpn {rc}"));
    assert!(text.starts_with("link transom0/1 cntn "), "{text}");
    assert!(text.contains("\n    rx_read_requests 3 \n"), "{text}");
    assert!(text.ends_with(&format!("\n    LQPN: <{rc}>\n")), "{text}");
    assert_eq!(told("statistic qp mode"), "link transom0/1 mode qp auto off \n");

    child.stdin.take().expect("a pipe").write_all(b"on\n").expect("it reads");
    assert!(child.wait().expect("it runs").success());
    for kind in ["qp", "mr", "mw", "cq", "pd", "ctx", "srq", "cm_id"] {
        assert_eq!(asked(&format!("resource show {kind}")), Vec::<Value>::new(), "{kind}");
    }
}

/// Rules: SEE-21, SEE-22
#[test]
fn rdma_shows_each_object() {
    alone(path_of!("rdma_shows_each_object"), Way::Namespace, known_objects);
}

/// Two contexts of a process, one of which is closed.
fn contexts() {
    let adapter = open_adapter(Options::default());
    let [mut one, _other] = [(); 2].map(|()| End::of_device(adapter.clone()));
    let numbers = |kind: &str| {
        let objects = asked(&format!("resource show {kind}")).into_iter();
        objects.map(|it| it["ctxn"].as_u64().expect("a number")).collect::<BTreeSet<_>>()
    };
    let both = numbers("ctx");
    assert_eq!(both.len(), 2);
    assert_eq!([numbers("cq"), numbers("pd")], [both.clone(), both.clone()]);
    for number in &both {
        assert_eq!(asked(&format!("resource show cq ctxn {number}")).len(), 1);
    }
    one.close();
    let left = numbers("ctx");
    assert!(left.len() == 1 && left.is_subset(&both), "{left:?} of {both:?}");
    assert_eq!([numbers("cq"), numbers("pd")], [left.clone(), left]);
}

/// Rules: SEE-21
#[test]
fn rdma_shows_the_context_that_an_object_was_made_in() {
    let path = path_of!("rdma_shows_the_context_that_an_object_was_made_in");
    alone(path, Way::Namespace, contexts);
}

/// Ends of a connection, and who listens.
fn connected() {
    interfaces_up();
    let mut children = Vec::new();
    let mut start = |words: &[&str]| {
        let mut run = Command::new(&command()[0]);
        run.args(["run", "--"]).args(words).stdin(Stdio::null()).stdout(Stdio::null());
        children.push(transom_conformance::programs::Running::start(&mut run));
    };
    let rping = transom_conformance::programs::program("rping", "rdmacm-utils");
    let rping = rping.to_str().expect("a plain path");
    start(&[rping, "-s", "-a", "127.0.0.1", "-p", "7171"]);
    let listens = || {
        let ids = asked("resource show cm_id state listen");
        (ids.len() == 1).then(|| ids[0].clone())
    };
    let listener = until("the listener", listens);
    assert_eq!((&listener["ps"], &listener["src-addr"]), (&"TCP".into(), &"127.0.0.1:7171".into()));
    is_as_on_linux("cm_id", &listener, &[("port", "number")]);
    // It listens at any address.
    start(&[rping, "-s", "-p", "7172"]);
    let listens = || asked("resource show cm_id state listen src-port 7172").pop();
    let listener = until("the other listener", listens);
    assert_eq!(listener["src-addr"], "0.0.0.0:7172");
    is_as_on_linux("cm_id", &listener, &[]);
    let line = told("resource show cm_id src-port 7172");
    assert!(line.starts_with("link transom0/- cm-idn "), "{line}");
    // It goes on for long.
    start(&[rping, "-c", "-a", "127.0.0.1", "-p", "7171", "-C", "100000000"]);
    let ends = until("both ends", || {
        let ends = asked("resource show cm_id link transom0/1 state CONNECT");
        (ends.len() == 2).then_some(ends)
    });
    ends.iter().for_each(|end| is_as_on_linux("cm_id", end, &[]));
    assert_eq!(asked("resource")[0]["cm_id"], asked("resource show cm_id").len());
    for end in ["src-addr", "dst-addr"] {
        let at = |id: &&Value| id[end].as_str().is_some_and(|it| it.ends_with(":7171"));
        assert_eq!(ends.iter().filter(at).count(), 1, "{end} of {ends:?}");
    }
    let [mut ours, mut theirs] = [Vec::new(), Vec::new()];
    for pair in asked("resource show qp state rts") {
        ours.push(pair["lqpn"].as_u64());
        theirs.push(pair["rqpn"].as_u64());
    }
    let mut found: Vec<_> = ends.iter().map(|it| it["lqpn"].as_u64()).collect();
    [&mut ours, &mut theirs, &mut found].iter_mut().for_each(|it| it.sort());
    assert_eq!((&found, &ours), (&ours, &theirs));
    let to = asked("resource show cm_id dst-port 7171");
    assert_eq!(to.len(), 1, "{to:?}");
}

/// Rules: SEE-21
#[test]
fn rdma_shows_connections() {
    alone(path_of!("rdma_shows_connections"), Way::Namespace, connected);
}
