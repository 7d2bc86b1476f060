//! Servers with ordinary sockets, and the clients that come with them, with librspreload.so preloaded into both. A
//! client that finds its server uses rsockets, because nobody listens over TCP.

use std::env;
use std::path::Path;
use std::process::Command;

use transom_conformance::processes::is_root;
use transom_conformance::programs::{Running, installed};

use super::{LIMIT, Strangers};
use crate::meeting::{free_port, wait_for_listener};
use crate::place::Place;

/// The content that servers store.
const PAGE: &str = "Served over RDMA.\n";

impl Strangers<'_> {
    /// redis, and its benchmark.
    pub(super) fn redis(&self) -> Result<(), String> {
        let port = free_port()?.to_string();
        let server = ["--port", &port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"];
        let _server = self.listening("redis-server", "redis-server", &server, &port)?;
        let measured = ["-p", &port, "-n", "2000", "-c", "20", "-q", "-t", "set,get,lpush"];
        self.expect("redis-benchmark", "redis-tools", &measured, &["SET:", "GET:", "LPUSH:"])?;
        self.expect("redis-cli", "redis-tools", &["-p", &port, "llen", "mylist"], &["2000"])
    }

    /// memcached, and the tools of its library.
    pub(super) fn memcached(&self) -> Result<(), String> {
        let port = free_port()?.to_string();
        let mut options = vec!["-p", &port, "-l", "127.0.0.1", "-U", "0"];
        if is_root() {
            options.extend(["-u", "root"]);
        }
        let _server = self.listening("memcached", "memcached", &options, &port)?;
        let (at, tools) = (format!("--servers=127.0.0.1:{port}"), "libmemcached-tools");
        let file = self.installation.folder().join("kept");
        std::fs::write(&file, PAGE).map_err(|error| format!("{}: {error}", file.display()))?;
        self.expect("memccp", tools, &[&at, &file.to_string_lossy()], &[])?;
        self.expect("memccat", tools, &[&at, "kept"], &[PAGE.trim_end()])?;
        self.expect("memcslap", tools, &[&at, "--concurrency=8", "--execute-number=200"], &[])?;
        // Its exit status is 0 even without a server, so its output counts.
        self.expect("memcstat", tools, &[&at], &["cmd_set: 1601"])
    }

    /// nginx as one process, and a benchmark of servers.
    pub(super) fn nginx(&self) -> Result<(), String> {
        let port = free_port()?.to_string();
        let folder = self.installation.folder().join(format!("nginx-{port}"));
        let complaint = |error| format!("{}: {error}", folder.display());
        std::fs::create_dir(&folder).map_err(complaint)?;
        std::fs::write(folder.join("page"), PAGE).map_err(complaint)?;
        std::fs::write(folder.join("nginx.conf"), nginx_conf(&folder, &port)).map_err(complaint)?;
        let folder = folder.to_string_lossy();
        let conf = format!("{folder}/nginx.conf");
        let options = ["-p", &folder, "-c", &conf, "-e", "stderr"];
        let _server = self.listening("nginx", "nginx-light", &options, &port)?;
        let page = format!("http://127.0.0.1:{port}/page");
        let all = ["Complete requests:      400", "Failed requests:        0"];
        self.expect("ab", "apache2-utils", &["-n", "400", "-c", "8", &page], &all)?;
        self.expect("curl", "curl", &["-s", &page], &[PAGE])
    }

    /// A program with rsockets in place of sockets.
    fn with_rsockets(
        &self,
        name: &str,
        package: &str,
        options: &[&str],
    ) -> Result<Command, String> {
        let mut command = self.command(&installed(name, package)?)?;
        // A check has preloaded a library too.
        let others = env::var("LD_PRELOAD").unwrap_or_default();
        let library = self.installation.sockets_library();
        command.env("LD_PRELOAD", format!("{}:{others}", library.display())).args(options);
        Ok(command)
    }

    /// A server that listens on an rsocket.
    fn listening(
        &self,
        name: &str,
        package: &str,
        options: &[&str],
        port: &str,
    ) -> Result<Running, String> {
        let mut server = Running::start(&mut self.with_rsockets(name, package, options)?);
        let port = port.parse().expect("a port is a number");
        wait_for_listener(&mut server, self.installation, Place::Here, port)?;
        Ok(server)
    }

    /// Checks that a client succeeds and prints these words.
    fn expect(
        &self,
        name: &str,
        package: &str,
        options: &[&str],
        words: &[&str],
    ) -> Result<(), String> {
        let client = Running::start(&mut self.with_rsockets(name, package, options)?);
        let printed = client.success(LIMIT)?;
        let all = words.iter().all(|word| printed.output.contains(word));
        if all { Ok(()) } else { Err(format!("{name}: {printed:?}")) }
    }
}

/// The configuration for one process in the foreground that writes only into its folder.
fn nginx_conf(folder: &Path, port: &str) -> String {
    let folder = folder.display();
    let places = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|kind| format!("{kind}_temp_path {folder}/{kind};"))
        .concat();
    format!(
        "daemon off; master_process off; pid {folder}/pid; events {{}}
         http {{ access_log off; {places} server {{ listen 127.0.0.1:{port}; root {folder}; }} }}"
    )
}
