//! Programs that open no device: all their allocations are the C library's.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use transom_conformance::programs::Running;

use super::{LIMIT, Memory, Stop, Watchers, tool};
use crate::meeting::free_port;

/// Commits of many small files, and git's work on them.
const HISTORY: &str = "
git init -q first && cd first
git config user.email nobody@localhost && git config user.name Nobody
for at in $(seq 40); do seq $((at * 50)) >file$at; git add .; git commit -qm \"commit $at\"; done
cd .. && git clone -q --no-local first second && cd second
git gc -q --aggressive && git repack -adq --threads=4 && git fsck --strict
git rev-list --all | wc -l";

impl Watchers<'_> {
    /// A server that forks to save its data while they change. Another server reads them.
    pub(super) fn redis(&self) -> Result<Memory, Stop> {
        let folder = self.place("redis");
        fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        let port = free_port()?.to_string();
        let mut server = self.redis_server(&folder, &port)?;
        self.redis_tool("redis-benchmark", &port, "-q -n 20000 -r 10000 -t set,lpush")?;
        self.redis_tool("redis-cli", &port, "set kept word")?;
        self.redis_tool("redis-cli", &port, "bgsave")?;
        self.redis_tool("redis-benchmark", &port, "-q -n 20000 -r 10000 -t set,lpush")?;
        let begin = Instant::now();
        loop {
            let told = self.redis_tool("redis-cli", &port, "info persistence")?;
            if told.contains("rdb_bgsave_in_progress:0") {
                if told.contains("rdb_last_bgsave_status:ok") {
                    break;
                }
                return Err(Stop::Wrong(told));
            }
            if begin.elapsed() > LIMIT {
                return Err(Stop::Wrong(format!("it does not end to save: {told}")));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        server.signal(libc::SIGTERM);
        server.success(LIMIT)?;
        let port = free_port()?.to_string();
        let _other = self.redis_server(&folder, &port)?;
        let kept = self.redis_tool("redis-cli", &port, "get kept")?;
        if kept.trim() == "word" { Ok(Memory::Untold) } else { Err(Stop::Wrong(kept)) }
    }

    fn redis_server(&self, folder: &Path, port: &str) -> Result<Running, Stop> {
        let mut command = self.command(&tool("redis-server", "redis-server")?)?;
        command.args(["--port", port, "--bind", "127.0.0.1", "--appendonly", "no"]);
        // It saves only on command.
        command.args(["--save", "", "--loglevel", "warning", "--dir"]).arg(folder);
        let mut server = Running::start(&mut command);
        server.wait_until_it_listens(port.parse().map_err(|_| format!("no port: {port}"))?)?;
        Ok(server)
    }

    fn redis_tool(&self, name: &str, port: &str, words: &str) -> Result<String, Stop> {
        let mut command = self.command(&tool(name, "redis-tools")?)?;
        command.args(["-p", port]).args(words.split_whitespace());
        Ok(Running::start(&mut command).success(LIMIT)?.output)
    }

    pub(super) fn git(&self) -> Result<Memory, Stop> {
        let git = tool("git", "git")?;
        let folder = self.place("git");
        fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        let mut command = self.command(&tool("sh", "dash")?)?;
        command.args(["-ec", HISTORY]).current_dir(&folder);
        command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_SYSTEM", "/dev/null");
        let printed = Running::start(&mut command).success(LIMIT)?;
        if printed.output.lines().last().map(str::trim) != Some("40") {
            return Err(Stop::Wrong(format!("{printed:?}")));
        }
        // Check again without our library.
        let mut check = Command::new(git);
        check.args(["fsck", "--strict"]).current_dir(folder.join("second"));
        Running::start(&mut check).success(LIMIT)?;
        Ok(Memory::Untold)
    }
}
