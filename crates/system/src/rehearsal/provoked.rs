//! The record of what was provoked in one process: a file in the directory of the rehearsal.
//!
//! The process maps its file when it joins. So a record takes no call of the kernel, and no right that a program gives up
//! (`setuid(2)`, `chroot(2)`). What is in the file stays when the process is killed.
//!
//! The first page is a line with the PID and the program. Behind it each provocation has room for its places, in the order
//! of [`Provocation::ALL`]. A place is one word. Zero is room that is free. Behind all of them those of `OF_VERBS` have
//! room for the name of the verb at each of their places.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::atomic::{
    AtomicU64,
    Ordering::{Relaxed, Release},
};

use transom_rehearse::{Place, Provocation};

use crate::file_limit;
use crate::shared_mapping::map_shared;

/// The beginning of the files' names. The number of the process follows.
const PREFIX: &str = "provoked-";
/// The most processes of a run.
const PROCESSES: u32 = 10_000;
/// The most provocations of one kind that are written down. More still happen.
const MOST: usize = 1000;
/// The bytes of the first page, and those of a word.
const HEADER: usize = 4096;
const WORD: usize = 8;
/// Those whose places are verbs that a reader of the report looks for.
const OF_VERBS: [Provocation; 2] = [Provocation::RefusedObjects, Provocation::SlowVerbs];
/// The words that a name has. A longer one is cut off.
const NAME: usize = 4;
/// The bits of a word that have the number of the operation. The others have that of the object.
const NTH: u32 = 40;

/// The record of this process.
#[derive(Debug)]
pub(super) struct Record {
    /// The number of this process in the run.
    pub(super) process: u32,
    words: &'static [AtomicU64],
    /// How many provocations of each kind there were.
    counts: Box<[AtomicU64]>,
}

/// What was provoked in a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Provoked {
    /// The number of the process in the run.
    pub process: u32,
    /// Its PID.
    pub pid: u32,
    /// The path of its program.
    pub program: String,
    /// The places, in the order of the provocations.
    pub places: Vec<Place>,
    /// The verbs at those places that are some.
    pub verbs: Vec<(Place, String)>,
}

impl Record {
    /// Takes the next number of the run, and makes the file, with room for what `may_be` provoked.
    pub(super) fn make(directory: &Path, may_be: impl Fn(Provocation) -> bool) -> io::Result<Self> {
        let made = |process: u32| {
            let mut options = OpenOptions::new();
            options.read(true).write(true).create_new(true).mode(0o600);
            let options = options.custom_flags(libc::O_CLOEXEC | libc::O_NOFOLLOW);
            let path = directory.join(format!("{PREFIX}{process}"));
            options.open(&path).map(|file| (process, path, file))
        };
        let taken = (0..PROCESSES).map(made).find(|made| match made {
            Err(error) => error.kind() != io::ErrorKind::AlreadyExists,
            Ok(_) => true,
        });
        let none_left = || Err(io::Error::other("too many processes"));
        let (process, path, file) = taken.unwrap_or_else(none_left)?;
        let words = Self::fill(&file, may_be).inspect_err(|_| {
            let _ = fs::remove_file(path);
        })?;
        let counts = Provocation::ALL.iter().map(|_| AtomicU64::new(0)).collect();
        Ok(Self { process, words, counts })
    }

    /// Gives the file its first line and its room, and maps it.
    fn fill(file: &File, may_be: impl Fn(Provocation) -> bool) -> io::Result<&'static [AtomicU64]> {
        let count = Provocation::ALL.len() * MOST + OF_VERBS.len() * MOST * NAME;
        let length = HEADER + count * WORD;
        file_limit::grow(|| file.set_len(length as u64))?;
        let program = fs::read_link("/proc/thread-self/exe").unwrap_or_default();
        let line = format!("{} {}\n", std::process::id(), program.display());
        let end = line.floor_char_boundary(HEADER);
        file_limit::grow(|| file.write_all_at(&line.as_bytes()[..end], 0))?;
        // A hole could find no room later, at a write that nobody expects to fail.
        let room = [0; MOST * WORD];
        for kind in Provocation::ALL.iter().copied().filter(|kind| may_be(*kind)) {
            let at = HEADER + kind as usize * room.len();
            file_limit::grow(|| file.write_all_at(&room, at as u64))?;
        }
        let names = [0; MOST * NAME * WORD];
        for kind in OF_VERBS.into_iter().filter(|kind| may_be(*kind)) {
            let at = HEADER + name_of(kind, 0).unwrap_or(0) * WORD;
            file_limit::grow(|| file.write_all_at(&names, at as u64))?;
        }
        let mapped = map_shared(file, 0, length)?;
        // SAFETY: the mapping has this length and stays until the process ends. A page is aligned, any bytes are a word,
        // and other processes only read.
        Ok(unsafe { std::slice::from_raw_parts(mapped.as_ptr().add(HEADER).cast(), count) })
    }

    /// Writes a place down, and the name of the verb there if it is one of [`OF_VERBS`]. False if it has no room for its
    /// numbers.
    pub(super) fn write(&self, place: &Place, verb: &str) -> bool {
        let Some(word) = word(place) else { return false };
        let kind = place.provocation as usize;
        let nth = self.counts[kind].fetch_add(1, Relaxed);
        if let Some(nth) = usize::try_from(nth).ok().filter(|nth| *nth < MOST) {
            if let Some(at) = name_of(place.provocation, nth) {
                let words = self.words[at..at + NAME].iter().zip(verb.as_bytes().chunks(WORD));
                words.for_each(|(word, bytes)| word.store(letters(bytes), Relaxed));
            }
            self.words[kind * MOST + nth].store(word, Release);
        }
        true
    }
}

/// A place as a word: its object and its operation, plus one.
fn word(place: &Place) -> Option<u64> {
    let object = u64::from(place.object);
    let fits = object < 1 << (u64::BITS - NTH) && place.nth < (1 << NTH) - 1;
    fits.then(|| (object << NTH | place.nth) + 1)
}

/// The first word of the name at the n-th place of a provocation, if its places are verbs.
fn name_of(kind: Provocation, nth: usize) -> Option<usize> {
    let index = OF_VERBS.iter().position(|it| *it == kind)?;
    Some(Provocation::ALL.len() * MOST + (index * MOST + nth) * NAME)
}

/// Eight letters of a name, or fewer, as a word.
fn letters(bytes: &[u8]) -> u64 {
    let mut word = [0; WORD];
    word.iter_mut().zip(bytes).for_each(|(letter, byte)| *letter = *byte);
    u64::from_ne_bytes(word)
}

/// What the processes of a run have written down so far, in the order of their numbers.
///
/// # Errors
///
/// Those of reading the directory. A file that is not whole yet is left out.
pub fn of_run(directory: &Path) -> io::Result<Vec<Provoked>> {
    let mut all = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let name = entry.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.parse().ok());
        if let (Some(process), Ok(bytes)) = (number, fs::read(entry.path())) {
            all.extend(read(process, &bytes));
        }
    }
    all.sort_by_key(|it| it.process);
    Ok(all)
}

fn read(process: u32, bytes: &[u8]) -> Option<Provoked> {
    let (header, words) = bytes.split_at_checked(HEADER)?;
    let header = String::from_utf8_lossy(header);
    let (pid, program) = header.split('\n').next()?.split_once(' ')?;
    let (mut places, mut verbs) = (Vec::new(), Vec::new());
    let all = words;
    for (kind, words) in Provocation::ALL.iter().zip(words.chunks(MOST * WORD)) {
        let words = words.as_chunks::<WORD>().0.iter().map(|it| u64::from_ne_bytes(*it));
        for (index, word) in words.enumerate().filter(|(_, word)| *word > 0) {
            let (object, nth) = ((word - 1) >> NTH, (word - 1) & ((1 << NTH) - 1));
            let place = Place { provocation: *kind, process, object: object as u32, nth };
            places.push(place);
            let name =
                name_of(*kind, index).and_then(|at| all.get(at * WORD..)?.get(..NAME * WORD));
            let name = name.and_then(|name| name.split(|letter| *letter == 0).next());
            let name = name.map(String::from_utf8_lossy).filter(|name| !name.is_empty());
            verbs.extend(name.map(|name| (place, name.into_owned())));
        }
    }
    Some(Provoked { process, pid: pid.parse().ok()?, program: program.to_owned(), places, verbs })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str) -> std::path::PathBuf {
        let folder =
            Path::new("/tmp").join(format!("transom-provoked-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    const PLACE: Place =
        Place { provocation: Provocation::PoisonedFields, process: 0, object: 2, nth: 5 };

    /// Rule: REH-03
    #[test]
    fn what_is_written_down_is_read_with_its_process() {
        let folder = folder("read");
        let records = [(); 2].map(|()| Record::make(&folder, |_| true).unwrap());
        let first = Place { provocation: Provocation::LateWork, nth: 0, ..PLACE };
        let last = Place { object: 0xff_ffff, nth: (1 << NTH) - 2, ..PLACE };
        assert!([first, PLACE, last].iter().all(|place| records[0].write(place, "")));
        let read = of_run(&folder).unwrap();
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(read[0].places, [first, PLACE, last]);
        assert_eq!(read[1].places, []);
        let program = std::env::current_exe().unwrap().to_string_lossy().into_owned();
        let processes = read.iter().map(|it| (it.process, it.pid, it.program.as_str()));
        let pid = std::process::id();
        assert_eq!(processes.collect::<Vec<_>>(), [(0, pid, &*program), (1, pid, &*program)]);
    }

    /// Rule: REH-03
    #[test]
    fn a_thousand_of_a_kind_are_written_down_and_more_may_happen() {
        let folder = folder("many");
        let record = Record::make(&folder, |kind| kind == PLACE.provocation).unwrap();
        assert!((0..MOST as u64 + 9).all(|nth| record.write(&Place { nth, ..PLACE }, "")));
        let read = of_run(&folder).unwrap();
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(read[0].places.len(), MOST);
        assert_eq!(read[0].places[MOST - 1].nth, MOST as u64 - 1);
    }

    /// A long name is cut off, and a place of another provocation has none.
    ///
    /// Rule: REH-03
    #[test]
    fn the_verb_at_a_place_is_written_down() {
        let folder = folder("verbs");
        let record = Record::make(&folder, |_| true).unwrap();
        let first = Place { provocation: Provocation::RefusedObjects, object: 0, nth: 1, ..PLACE };
        let slow = Place { provocation: Provocation::SlowVerbs, ..first };
        let long = "ibv_create_something_of_a_long_name";
        let written = [(slow, long), (PLACE, "ibv_poll_cq"), (first, "ibv_create_cq")];
        assert!(written.iter().all(|(place, verb)| record.write(place, verb)));
        let read = of_run(&folder).unwrap();
        fs::remove_dir_all(&folder).unwrap();
        let verbs = [(slow, long[..NAME * WORD].to_owned()), (first, "ibv_create_cq".to_owned())];
        assert_eq!(read[0].verbs, verbs);
    }

    /// Rule: REH-03
    #[test]
    fn a_place_that_has_no_room_is_not_written_down() {
        let folder = folder("room");
        let record = Record::make(&folder, |_| true).unwrap();
        for far in [Place { object: 1 << 24, ..PLACE }, Place { nth: 1 << NTH, ..PLACE }] {
            assert!(!record.write(&far, ""), "{far}");
        }
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_file_that_is_not_whole_is_left_out() {
        let folder = folder("whole");
        for (name, text) in [("provoked-0", ""), ("provoked-1", "12 /bin/a"), ("plan", "seed 1")] {
            fs::write(folder.join(name), text).unwrap();
        }
        let read = of_run(&folder).unwrap();
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(read, []);
    }
}
