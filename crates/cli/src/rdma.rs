//! The parts of iproute2's command `rdma` that show devices. Under `transom run` a program finds this command by that
//! name. It answers for Transom's device as the kernel would for its own devices. It leaves the rest to the real
//! command.

use crate::broken_pipe;
use crate::failure::{Failure, Result};
use crate::run::{RDMA, private};
use serde::Serialize;
use serde::ser::SerializeMap;
use std::env;
use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use transom_ibverbs::{DeviceName, FW_VER, device_attributes, port_attributes};
use transom_system::addresses::Addresses;
use transom_system::environment::DEVICE_NAME;
use transom_system::object_counts::ObjectKind;
use transom_system::port_counters::HW_COUNTERS;
use transom_system::registry::Registry;
use transom_system::segment::Segment;
use transom_system::{node_guid, system_image_guid};

/// The device's number among the kernel's.
const INDEX: u32 = 0;
/// Its only port.
const PORT: u32 = 1;

/// The objects that the user can name, in the real command's order: it takes the first that begins with the
/// given word.
const OBJECTS: [(&str, Option<Object>); 7] = [
    ("help", None),
    ("dev", Some(Object::Device)),
    ("link", Some(Object::Link)),
    ("resource", Some(Object::Resource)),
    ("system", None),
    ("statistic", Some(Object::Statistic)),
    ("monitor", None),
];

#[derive(Clone, Copy, Debug, PartialEq)]
enum Object {
    Device,
    Link,
    Resource,
    Statistic,
}

/// The question on the command line, if this command can answer it.
#[derive(Debug, PartialEq)]
struct Question {
    object: Object,
    /// The device or port, as the user names it.
    of: Option<String>,
    json: bool,
    pretty: bool,
    details: bool,
    /// Whether all output stays on one line.
    oneline: bool,
}

/// Whether this command was called by the name `rdma`.
pub(crate) fn is_name(called: Option<&OsStr>) -> bool {
    called.and_then(|called| Path::new(called).file_name()) == Some(OsStr::new(RDMA))
}

/// Answers, or becomes the real command.
pub(crate) fn run(arguments: &[OsString]) -> Result<ExitCode> {
    let words: Option<Vec<&str>> = arguments.iter().map(|word| word.to_str()).collect();
    let Some(question) = words.and_then(|words| Question::parse(&words)) else {
        return hand_on(arguments);
    };
    let name = DeviceName::chosen()
        .map_err(|error| Failure::new(format_args!("{}: {error}", DEVICE_NAME.name)))?;
    match (&question.of, question.object) {
        (Some(of), object) if !is_meant(of, object, &name.to_string()) => {
            // Most likely the word is a kind of resources.
            if object == Object::Resource {
                return hand_on(arguments);
            }
            Err(Failure::new(format_args!("wrong device name {of}; `transom run` has {name}")))
        }
        _ => question.answer(name).map(|()| ExitCode::SUCCESS),
    }
}

/// Whether a word names our device, or its port.
fn is_meant(word: &str, object: Object, name: &str) -> bool {
    let port = || word.strip_prefix(name)?.strip_prefix('/')?.parse().ok();
    word == name || matches!(object, Object::Link | Object::Statistic) && port() == Some(PORT)
}

impl Question {
    fn parse(arguments: &[&str]) -> Option<Self> {
        let (mut json, mut pretty, mut details, mut oneline) = (false, false, false, false);
        let mut words = Vec::new();
        for argument in arguments {
            let letters = match *argument {
                "--json" => "j",
                "--pretty" => "p",
                "--details" => "d",
                "--raw" => "r",
                "--oneline" => "o",
                long if long.starts_with("--") => return None,
                word => match word.strip_prefix('-').filter(|letters| !letters.is_empty()) {
                    Some(letters) => letters,
                    None => {
                        words.push(word);
                        continue;
                    }
                },
            };
            for letter in letters.chars() {
                match letter {
                    'j' => json = true,
                    'p' => pretty = true,
                    'd' => details = true,
                    'o' => oneline = true,
                    // It concerns numbers that are not shown here.
                    'r' => {}
                    _ => return None,
                }
            }
        }
        let mut words = words.into_iter();
        let object = words.next()?;
        let (_, object) = OBJECTS.into_iter().find(|(name, _)| name.starts_with(object))?;
        let shows = |command: &str| ["show", "list"].iter().any(|it| it.starts_with(command));
        if !words.next().is_none_or(shows) {
            return None;
        }
        let mut of = words.next();
        if object == Some(Object::Statistic) && of.is_some_and(|word| "link".starts_with(word)) {
            of = words.next();
        }
        let of = of.map(str::to_owned);
        let question = Self { object: object?, of, json, pretty, details, oneline };
        words.next().is_none().then_some(question)
    }

    fn answer(&self, name: &DeviceName) -> Result {
        let addresses = || {
            Addresses::read().map_err(|error| {
                Failure::new(format_args!("cannot read the addresses of this host: {error}"))
            })
        };
        match self.object {
            Object::Device => self.print(&Device::new(name, self.details)),
            Object::Link => self.print(&Link::new(name, &addresses()?)),
            Object::Resource => self.print(&Resources::new(name)?),
            Object::Statistic => self.print(&Statistic::new(name)?),
        }
    }

    fn print(&self, shown: &impl Shown) -> Result {
        let mut out = std::io::stdout().lock();
        if !self.json {
            writeln!(out, "{}", shown.line(self))?;
        } else if self.pretty {
            writeln!(out, "{}", serde_json::to_string_pretty(&[shown]).map_err(Failure::new)?)?;
        } else {
            writeln!(out, "{}", serde_json::to_string(&[shown]).map_err(Failure::new)?)?;
        }
        Ok(())
    }
}

/// An answer. Its fields have the real command's names and order.
trait Shown: Serialize {
    /// As text: a space follows each field, even the last.
    fn line(&self, question: &Question) -> String;
}

#[derive(Serialize)]
struct Device {
    ifindex: u32,
    ifname: String,
    node_type: &'static str,
    protocol: &'static str,
    fw: String,
    node_guid: String,
    sys_image_guid: String,
    #[serde(rename = "adaptive-moderation", skip_serializing_if = "Option::is_none")]
    adaptive_moderation: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    caps: Option<Vec<&'static str>>,
}

impl Device {
    fn new(name: &DeviceName, details: bool) -> Self {
        // The program chooses the kind of its type 2 windows, so the device does not know it.
        let attributes = device_attributes(false);
        let groups = |guid: u64| {
            let words = guid.to_be_bytes();
            let words = words.chunks(2).map(|word| format!("{:02x}{:02x}", word[0], word[1]));
            words.collect::<Vec<_>>().join(":")
        };
        Self {
            ifindex: INDEX,
            ifname: name.to_string(),
            node_type: "ca",
            protocol: "roce",
            fw: FW_VER.to_string_lossy().into_owned(),
            node_guid: groups(node_guid()),
            sys_image_guid: groups(system_image_guid()),
            adaptive_moderation: details.then_some(false),
            caps: details.then(|| capabilities(attributes.device_cap_flags)),
        }
    }
}

impl Shown for Device {
    fn line(&self, question: &Question) -> String {
        let Self { ifindex, ifname, node_type, protocol, fw, node_guid, sys_image_guid, .. } = self;
        let details = self.caps.as_ref().map_or_else(String::new, |caps| {
            let end = if question.oneline { '\\' } else { '\n' };
            format!("adaptive-moderation off {end}    caps: <{}>", caps.join(", "))
        });
        format!(
            "{ifindex}: {ifname}: node_type {node_type} protocol {protocol} fw {fw} \
             node_guid {node_guid} sys_image_guid {sys_image_guid} {details}"
        )
    }
}

/// The names of capabilities, by their bits.
fn capabilities(flags: u32) -> Vec<&'static str> {
    let name = |bit| match bit {
        7 => "CURR_QP_STATE_MOD",
        11 => "SYS_IMAGE_GUID",
        12 => "RC_RNR_NAK_GEN",
        13 => "SRQ_RESIZE",
        17 => "MEM_WINDOW",
        20 => "XRC",
        21 => "MEM_MGT_EXTENSIONS",
        23 => "MEM_WINDOW_TYPE_2A",
        24 => "MEM_WINDOW_TYPE_2B",
        _ => "UNKNOWN",
    };
    (0..u32::BITS).filter(|bit| flags >> bit & 1 == 1).map(name).collect()
}

#[derive(Serialize)]
struct Link {
    ifindex: u32,
    ifname: String,
    port: u32,
    state: &'static str,
    physical_state: &'static str,
    /// The interface of the first address, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    netdev: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    netdev_index: Option<u32>,
}

impl Link {
    fn new(name: &DeviceName, addresses: &Addresses) -> Self {
        let port = port_attributes(addresses);
        let states = ["NOP", "DOWN", "INIT", "ARMED", "ACTIVE", "ACTIVE_DEFER"];
        let physical = ["NOP", "SLEEP", "POLLING", "DISABLED", "ARMED", "LINK_UP"];
        let first = addresses.get(0);
        let netdev = first.and_then(|address| address.interface_name());
        Self {
            ifindex: INDEX,
            ifname: name.to_string(),
            port: PORT,
            state: states.get(port.state as usize).copied().unwrap_or("UNKNOWN"),
            physical_state: physical.get(usize::from(port.phys_state)).unwrap_or(&"UNKNOWN"),
            netdev_index: netdev.as_ref().and(first).map(|address| address.interface),
            netdev,
        }
    }
}

impl Shown for Link {
    fn line(&self, question: &Question) -> String {
        let Self { ifname, port, state, physical_state, .. } = self;
        let mut line =
            format!("link {ifname}/{port} state {state} physical_state {physical_state} ");
        if let Some(netdev) = &self.netdev {
            line += &format!("netdev {netdev} ");
        }
        if let Some(index) = self.netdev_index.filter(|_| question.details) {
            line += &format!("netdev_index {index} ");
        }
        line
    }
}

/// The counters of the port that the kernel's drivers add.
struct Statistic {
    name: String,
    counters: Vec<(&'static str, u64)>,
}

impl Statistic {
    fn new(name: &DeviceName) -> Result<Self> {
        let sums = crate::devices::registry()?.sums();
        let counters = HW_COUNTERS.iter().map(|(name, value)| (*name, value(&sums))).collect();
        Ok(Self { name: name.to_string(), counters })
    }
}

impl Serialize for Statistic {
    fn serialize<S: serde::Serializer>(
        &self,
        serializer: S,
    ) -> std::result::Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_map(None)?;
        fields.serialize_entry("ifname", &self.name)?;
        fields.serialize_entry("port", &PORT)?;
        for (name, count) in &self.counters {
            fields.serialize_entry(name, count)?;
        }
        fields.end()
    }
}

impl Shown for Statistic {
    fn line(&self, _: &Question) -> String {
        let counts = self.counters.iter().map(|(name, count)| format!("{name} {count} "));
        format!("link {}/{PORT} {}", self.name, counts.collect::<String>())
    }
}

/// The objects of this user's processes, as far as this process may look into them.
struct Resources {
    name: String,
    counts: [(&'static str, u64); 7],
}

impl Resources {
    fn new(name: &DeviceName) -> Result<Self> {
        let registry = crate::devices::registry()?;
        let count = total(registry);
        let counts = [
            ("pd", count(ObjectKind::Domain)),
            ("cq", count(ObjectKind::CompletionQueue)),
            ("qp", count(ObjectKind::QueuePair)),
            // The kernel does not make the connections.
            ("cm_id", 0),
            ("mr", count(ObjectKind::Region)),
            ("ctx", count(ObjectKind::Context)),
            ("srq", count(ObjectKind::SharedReceiveQueue)),
        ];
        Ok(Self { name: name.to_string(), counts })
    }
}

/// The number of objects of a kind that all processes have.
fn total(registry: &Registry) -> impl Fn(ObjectKind) -> u64 {
    let running = registry.processes().into_iter().filter(|process| process.alive);
    let all: Vec<_> = running.filter_map(|process| Segment::objects_of(&process)).collect();
    move |kind| all.iter().map(|counts| u64::from(counts.get(kind))).sum()
}

impl Serialize for Resources {
    fn serialize<S: serde::Serializer>(
        &self,
        serializer: S,
    ) -> std::result::Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_map(None)?;
        fields.serialize_entry("ifindex", &INDEX)?;
        fields.serialize_entry("ifname", &self.name)?;
        for (name, count) in &self.counts {
            fields.serialize_entry(name, count)?;
        }
        fields.end()
    }
}

impl Shown for Resources {
    fn line(&self, _: &Question) -> String {
        let counts = self.counts.map(|(name, count)| format!("{name} {count} "));
        format!("{INDEX}: {}: {}", self.name, counts.concat())
    }
}

/// Replaces this process by the next command of this name in PATH.
fn hand_on(arguments: &[OsString]) -> Result<ExitCode> {
    let Some(next) = next_in_path() else {
        return Err(Failure::with_status(
            127,
            "under `transom run`, `rdma` answers `dev`, `link`, `resource` and `statistic`, each with `show`; there is \
             no other `rdma` in PATH for the rest (install the package iproute2)",
        ));
    };
    let mut command = Command::new(&next);
    broken_pipe::leave_as_it_was(&mut command);
    let error = command.arg0(RDMA).args(arguments).exec();
    Err(Failure::with_status(126, format_args!("cannot run {}: {error}", next.display())))
}

fn next_in_path() -> Option<PathBuf> {
    let ours = env::current_exe().and_then(|path| path.canonicalize()).ok();
    next_behind(ours.as_deref(), &env::var_os("PATH")?)
}

/// The next command behind ours in PATH. It skips commands that a `transom run` has put there: a command of another
/// build looks for the next one too, and the two would call each other forever.
fn next_behind(ours: Option<&Path>, path: &OsStr) -> Option<PathBuf> {
    let found = env::split_paths(path).map(|directory| directory.join(RDMA));
    let found: Vec<_> = found.filter(|path| path.is_file()).collect();
    let is_ours = |path: &PathBuf| path.canonicalize().ok().as_deref() == ours;
    let behind = found.iter().rposition(is_ours).map_or(0, |last| last + 1);
    found.into_iter().skip(behind).find(|path| !private::is_below(path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::scratch::Scratch;

    fn parsed(line: &str) -> Option<Question> {
        Question::parse(&line.split_whitespace().collect::<Vec<_>>())
    }

    #[test]
    fn what_shows_devices_is_answered_and_the_rest_is_not() {
        for (line, object, of) in [
            ("link", Object::Link, None),
            ("link show", Object::Link, None),
            ("l s rxe0/1", Object::Link, Some("rxe0/1")),
            ("dev show rxe0", Object::Device, Some("rxe0")),
            ("dev list", Object::Device, None),
            ("res", Object::Resource, None),
            ("resource show rxe0", Object::Resource, Some("rxe0")),
            ("statistic", Object::Statistic, None),
            ("statistic show link rxe0/1", Object::Statistic, Some("rxe0/1")),
            ("stat show rxe0", Object::Statistic, Some("rxe0")),
        ] {
            let question = parsed(line).unwrap();
            assert_eq!((question.object, question.of.as_deref()), (object, of), "{line}");
        }
        let json = parsed("-jp link --details").unwrap();
        assert_eq!((json.json, json.pretty, json.details), (true, true, true));
        for line in [
            "",
            "-V",
            "help",
            "system",
            "link add rxe0 type rxe netdev eth0",
            "dev set rxe0 name rxe1",
            "resource show qp link rxe0/1",
            "statistic qp show",
            "statistic bind link rxe0/1",
            "-b file",
            "link help",
            "--batch link",
            "link show rxe0/1 more",
        ] {
            assert_eq!(parsed(line), None, "{line}");
        }
    }

    #[test]
    fn what_is_handed_on_does_not_come_back() {
        let scratch = Scratch::new("rdma");
        let [one, other] = ["one/transom", "other/transom"].map(|build| scratch.file(build));
        let real = scratch.file("usr/bin/rdma");
        let put = |directory: &str, build: &Path| {
            let directory = scratch.0.join(directory);
            std::fs::create_dir_all(&directory).unwrap();
            std::os::unix::fs::symlink(build, directory.join(RDMA)).unwrap();
            directory
        };
        // As `transom run` puts them there, and as a user may.
        for [first, second] in [["transom-run-7/1", "transom-run-7/2"], ["1", "2"]] {
            let (first, second) = (put(first, &one), put(second, &other));
            let usual = scratch.0.join("usr/bin");
            for (calling, path) in [
                (&one, [&second, &first, &usual]),
                (&other, [&first, &second, &usual]),
                (&one, [&first, &first, &usual]),
            ] {
                let path = env::join_paths(path).unwrap();
                assert_eq!(next_behind(Some(calling), &path).as_ref(), Some(&real));
            }
            // If the first of them was called, the later one of the same build is the same program.
            let path = env::join_paths([&first, &second, &first, &usual]).unwrap();
            assert_eq!(next_behind(Some(&one), &path).as_ref(), Some(&real));
            let path = env::join_paths([&first, &second]).unwrap();
            assert_eq!(next_behind(Some(&other), &path), None);
        }
        let run =
            env::join_paths(["transom-run-7/1", "transom-run-7/2"].map(|it| scratch.0.join(it)));
        assert_eq!(next_behind(Some(&one), &run.unwrap()), None, "none but those of runs");
    }

    #[test]
    fn ports_are_named_by_device_and_number() {
        for (word, object, meant) in [
            ("rxe0", Object::Device, true),
            ("rxe0", Object::Link, true),
            ("rxe0/1", Object::Link, true),
            ("rxe0/2", Object::Link, false),
            ("rxe0/", Object::Link, false),
            ("rxe0/1", Object::Device, false),
            ("rxe01", Object::Link, false),
            ("mlx5_0/1", Object::Link, false),
        ] {
            assert_eq!(is_meant(word, object, "rxe0"), meant, "{word}");
        }
    }
}
