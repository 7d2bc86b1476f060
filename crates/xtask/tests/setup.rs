//! Shows what `ci/setup.sh` installs and refuses, with a stand-in for the command.

use sha2::{Digest, Sha256};
use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::thread;

/// It prints its arguments.
const STAND_IN: &str = "#!/bin/sh\necho \"called with $*\"\n";

/// A user's home directory, for one test.
struct Home(PathBuf);

impl Home {
    fn new(name: &str) -> Self {
        let home = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let _ = fs::remove_dir_all(&home);
        fs::create_dir(&home).unwrap();
        Self(home)
    }

    fn file(&self, name: &str, text: &str) -> String {
        let path = self.0.join(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }

    fn installed(&self) -> PathBuf {
        self.0.join(".local/bin/transom")
    }

    fn set_up(&self, script: &Path, arguments: &[&str]) -> Output {
        // If the test ran the script directly, a process of another test might still have it open for writing.
        let mut command = Command::new("sh");
        command.arg(script).args(arguments).current_dir(&self.0).env("HOME", &self.0);
        command.env("no_proxy", "*");
        command.env("GITHUB_PATH", self.0.join("path")).output().unwrap()
    }

    /// The reason why it was refused. Checks that nothing was installed.
    fn refused(&self, arguments: &[&str]) -> String {
        let output = self.set_up(&script(), arguments);
        assert!(!output.status.success(), "{output:?}");
        assert!(!self.installed().exists() && !self.0.join("path").exists());
        String::from_utf8(output.stderr).unwrap()
    }
}

fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../ci/setup.sh")
}

fn digest(text: &str) -> String {
    Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The address of a server that gives this answer once.
fn served(answer: String) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut asked = Vec::new();
        while !asked.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            asked.extend(byte);
        }
        stream.write_all(answer.as_bytes()).unwrap();
    });
    format!("http://{address}/transom")
}

fn with_length(text: &str) -> String {
    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{text}", text.len())
}

#[test]
fn a_file_with_its_digest_is_installed_and_asked_what_works() {
    let home = Home::new("file");
    home.file("given", STAND_IN);
    let output = home.set_up(&script(), &["given", &digest(STAND_IN)]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(output.stdout, b"called with --version\ncalled with doctor\n");
    assert_eq!(fs::metadata(home.installed()).unwrap().permissions().mode() & 0o777, 0o755);
    let told = fs::read_to_string(home.0.join("path")).unwrap();
    assert_eq!(Path::new(told.trim_end()), home.installed().parent().unwrap());
}

#[test]
fn a_url_is_fetched() {
    let home = Home::new("url");
    let url = served(with_length(STAND_IN));
    let output = home.set_up(&script(), &[&url, &digest(STAND_IN)]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(fs::read_to_string(home.installed()).unwrap(), STAND_IN);
}

#[test]
fn what_has_another_digest_is_not_installed() {
    let home = Home::new("digest");
    let wanted = digest("something else");
    let given = home.file("given", STAND_IN);
    let said = home.refused(&[&given, &wanted]);
    assert!(said.contains(&wanted) && said.contains(&digest(STAND_IN)), "{said}");
    home.refused(&[&served(with_length(STAND_IN)), &wanted]);
}

#[test]
fn what_is_not_there_is_not_installed() {
    let home = Home::new("absent");
    let gone =
        served("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".into());
    let said = home.refused(&[&gone, &digest("")]);
    assert!(said.contains("cannot be fetched"), "{said}");
    home.refused(&["no-such-file", &digest("")]);
}

#[test]
fn a_file_without_a_digest_is_refused_and_so_is_the_reverse() {
    let home = Home::new("halves");
    let given = home.file("given", STAND_IN);
    for arguments in [&[&*given][..], &[&given, ""], &["", &digest(STAND_IN)]] {
        let said = home.refused(arguments);
        assert!(said.contains("belong together"), "{said}");
    }
}

#[test]
fn where_something_will_not_work_the_job_ends() {
    let home = Home::new("doctor");
    let sick = "#!/bin/sh\n[ \"$1\" != doctor ]\n";
    home.file("given", sick);
    let output = home.set_up(&script(), &["given", &digest(sick)]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
}

#[test]
fn what_is_there_from_before_is_replaced() {
    let home = Home::new("before");
    let elsewhere = home.file("elsewhere", "what an earlier build left");
    fs::create_dir_all(home.installed().parent().unwrap()).unwrap();
    std::os::unix::fs::symlink(&elsewhere, home.installed()).unwrap();
    home.file("given", STAND_IN);
    assert!(home.set_up(&script(), &["given", &digest(STAND_IN)]).status.success());
    assert_eq!(fs::read_to_string(home.installed()).unwrap(), STAND_IN);
    assert_eq!(fs::read_to_string(elsewhere).unwrap(), "what an earlier build left");
}

#[test]
fn the_script_can_be_called_by_its_name() {
    assert!(fs::metadata(script()).unwrap().permissions().mode() & 0o111 == 0o111);
}

#[test]
fn a_copy_of_the_script_alone_builds_nothing_and_says_why() {
    let home = Home::new("copy");
    let copy = home.0.join("ci/setup.sh");
    fs::create_dir(home.0.join("ci")).unwrap();
    fs::copy(script(), &copy).unwrap();
    for arguments in [&[][..], &["", ""]] {
        let output = home.set_up(&copy, arguments);
        assert!(!output.status.success(), "{output:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("no source"), "{output:?}");
    }
}
