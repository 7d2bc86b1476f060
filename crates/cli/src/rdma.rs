//! The parts of iproute2's command `rdma` that show devices. Under `transom run` a program finds this command by that
//! name. It answers for Transom's device as the kernel would for its own devices. It leaves the rest to the real
//! command.

mod device;
mod objects;
mod rows;

use crate::broken_pipe;
use crate::devices::addresses;
use crate::failure::{Failure, Result};
use crate::run::{RDMA, private};
use device::{Device, Link, Resources, Statistic};
use rows::{Filter, Row};
use serde::Serialize;
use std::env;
use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use transom_ibverbs::Description;

/// A device, and its number.
type Numbered<'a> = (u8, &'a Description);

/// The only port of a device.
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
    /// Each object of a kind.
    Each(objects::Kind),
    /// How counters are bound to queue pairs.
    Mode,
}

impl Object {
    /// Whether it belongs to a port, and not to the device.
    fn is_of_port(self) -> bool {
        match self {
            Self::Link | Self::Statistic | Self::Mode => true,
            Self::Device | Self::Resource => false,
            Self::Each(kind) => kind.is_of_port(),
        }
    }
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
    /// Which objects to show, of those there are.
    filters: Vec<Filter>,
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
    let all = Description::chosen().map_err(Failure::new)?;
    let is_asked_for = |(_, device): &Numbered<'_>| {
        let of = question.of.as_ref();
        of.is_none_or(|of| is_meant(of, question.object, &device.name.to_string()))
    };
    let asked: Vec<_> = (0..).zip(all).filter(is_asked_for).collect();
    match &question.of {
        Some(of) if asked.is_empty() => {
            // Most likely the word is a kind of resources that is not known here.
            if question.object == Object::Resource {
                return hand_on(arguments);
            }
            let names: Vec<_> = all.iter().map(|device| device.name.to_string()).collect();
            let names = names.join(", ");
            Err(Failure::new(format_args!("wrong device name {of}; `transom run` has {names}")))
        }
        _ => question.answer(&asked).map(|()| ExitCode::SUCCESS),
    }
}

/// Whether a word names our device, or its port.
fn is_meant(word: &str, object: Object, name: &str) -> bool {
    let port = || word.strip_prefix(name)?.strip_prefix('/')?.parse().ok();
    word == name || object.is_of_port() && port() == Some(PORT)
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
        let asked = Asked::parse(&words)?;
        let Asked { object, of, filters } = asked;
        Some(Self { object, of, json, pretty, details, oneline, filters })
    }

    fn answer(&self, devices: &[Numbered<'_>]) -> Result {
        let each = devices.iter().copied();
        match self.object {
            Object::Device => self.print(each.map(|it| Ok(Device::new(it, self.details)))),
            Object::Link => {
                let link = |it: Numbered<'_>| Ok(Link::new(it, &addresses(it.1)?));
                self.print(each.map(link))
            }
            Object::Resource => self.print(each.map(Resources::new)),
            Object::Statistic => self.print(each.map(Statistic::new)),
            Object::Each(kind) => {
                let all = each.map(|it| objects::all(kind, it)).collect::<Result<Vec<_>>>()?;
                self.print_rows(&all.concat())
            }
            Object::Mode => self.print_rows(&each.map(objects::mode).collect::<Vec<_>>()),
        }
    }

    fn print_rows(&self, rows: &[Row]) -> Result {
        let shown: Vec<_> =
            rows.iter().filter(|row| self.filters.iter().all(|it| it.lets(row))).collect();
        let mut out = std::io::stdout().lock();
        if !self.json {
            let end = if self.oneline { '\\' } else { '\n' };
            return Ok(shown.iter().try_for_each(|row| writeln!(out, "{}", row.line(end)))?);
        }
        let text = match self.pretty {
            true => serde_json::to_string_pretty(&shown),
            false => serde_json::to_string(&shown),
        };
        Ok(writeln!(out, "{}", text.map_err(Failure::new)?)?)
    }

    fn print<S: Shown>(&self, shown: impl Iterator<Item = Result<S>>) -> Result {
        let shown = shown.collect::<Result<Vec<_>>>()?;
        let mut out = std::io::stdout().lock();
        if !self.json {
            shown.iter().try_for_each(|it| writeln!(out, "{}", it.line(self)))?;
        } else if self.pretty {
            writeln!(out, "{}", serde_json::to_string_pretty(&shown).map_err(Failure::new)?)?;
        } else {
            writeln!(out, "{}", serde_json::to_string(&shown).map_err(Failure::new)?)?;
        }
        Ok(())
    }
}

/// What the words ask for.
struct Asked {
    object: Object,
    of: Option<String>,
    filters: Vec<Filter>,
}

impl Asked {
    fn parse(words: &[&str]) -> Option<Self> {
        let [object, rest @ ..] = words else { return None };
        let (_, object) = OBJECTS.into_iter().find(|(name, _)| name.starts_with(object))?;
        match (object?, rest) {
            (Object::Statistic, [of, rest @ ..]) if "qp".starts_with(of) => Self::counters(rest),
            // Another command of this object.
            (_, [first, ..]) if !is_show(first) => None,
            (object, rest) => {
                let rest = without_show(rest);
                match (object, rest) {
                    (Object::Resource, [kind, of_kind @ ..]) => match objects::Kind::named(kind) {
                        Some(kind) => Self::each(kind, of_kind),
                        None => Self::one(object, rest),
                    },
                    _ => Self::one(object, rest),
                }
            }
        }
    }

    /// The device, or its port.
    fn one(object: Object, rest: &[&str]) -> Option<Self> {
        let rest = match (object, rest) {
            (Object::Statistic, [link, rest @ ..]) if "link".starts_with(link) => rest,
            _ => rest,
        };
        match rest {
            [] => Some(Self { object, of: None, filters: Vec::new() }),
            [of] => Some(Self { object, of: Some((*of).to_owned()), filters: Vec::new() }),
            _ => None,
        }
    }

    /// What each queue pair has counted.
    fn counters(rest: &[&str]) -> Option<Self> {
        if let [mode, rest @ ..] = rest
            && is_short_for(mode, "mode")
        {
            let Self { of, filters, .. } = Self::each(objects::Kind::Counters, rest)?;
            return filters.is_empty().then_some(Self { object: Object::Mode, of, filters });
        }
        let shows = rest.first().is_none_or(|word| is_show(word));
        shows.then(|| Self::each(objects::Kind::Counters, without_show(rest)))?
    }

    /// Objects of a kind: pairs of a key and a value.
    fn each(kind: objects::Kind, rest: &[&str]) -> Option<Self> {
        let (mut of, mut filters) = (None, Vec::new());
        // The port may be left out behind `link`, and the device behind `dev`.
        let rest = if rest.len() == 1 && is_place(rest[0]) { &[] } else { rest };
        for pair in rest.chunks(2) {
            let [key, value] = pair else { return None };
            match is_place(key) {
                true => of = Some((*value).to_owned()),
                false => filters.push(Filter::new(kind.keys(), key, value)?),
            }
        }
        Some(Self { object: Object::Each(kind), of, filters })
    }
}

fn is_short_for(word: &str, whole: &str) -> bool {
    !word.is_empty() && whole.starts_with(word)
}

fn is_show(word: &str) -> bool {
    ["show", "list"].iter().any(|it| is_short_for(word, it))
}

/// Whether a device or a port follows.
fn is_place(key: &str) -> bool {
    ["link", "dev"].iter().any(|it| is_short_for(key, it))
}

fn without_show<'a>(words: &'a [&'a str]) -> &'a [&'a str] {
    match words {
        [show, rest @ ..] if is_show(show) => rest,
        _ => words,
    }
}

/// An answer. Its fields have the real command's names and order.
trait Shown: Serialize {
    /// As text: a space follows each field, even the last.
    fn line(&self, question: &Question) -> String;
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
    use super::objects::Kind;
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
            // Handed on later, because no device has that name.
            ("resource show frmr_pools", Object::Resource, Some("frmr_pools")),
            ("res show qp", Object::Each(Kind::QueuePair), None),
            ("res show cm_id link rxe0/1", Object::Each(Kind::ConnectionId), Some("rxe0/1")),
            ("resource show mr dev rxe0", Object::Each(Kind::Region), Some("rxe0")),
            ("resource show mw", Object::Each(Kind::Window), None),
            ("resource list cq users 2", Object::Each(Kind::CompletionQueue), None),
            ("stat qp", Object::Each(Kind::Counters), None),
            ("stat qp show link rxe0/1 lqpn 5-7", Object::Each(Kind::Counters), Some("rxe0/1")),
            ("stat qp mode link rxe0/1", Object::Mode, Some("rxe0/1")),
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
            "resource show qp lqpn",
            "resource show qp wrong 1",
            "resource show qp lqpn x",
            "statistic mode",
            "statistic qp set link rxe0/1 auto off",
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
