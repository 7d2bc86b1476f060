//! The program of a litmus test, as `spec/ordering.md` writes it.

use std::collections::BTreeMap;

/// Nodes with memory, queue pairs between them, and what their threads do.
#[derive(Debug, Default)]
pub struct Program {
    /// All words of memory.
    pub locations: Vec<Location>,
    /// For each window: its location, and whether its key is good from the start.
    pub windows: Vec<(usize, bool)>,
    /// All ends of queue pairs.
    pub ends: Vec<End>,
    /// How many registers the threads have.
    pub registers: usize,
    /// How many ways there are to tell each other something without RDMA.
    pub channels: usize,
    /// What each thread does.
    pub threads: Vec<Vec<Statement>>,
    /// The node of each thread.
    pub thread_nodes: Vec<String>,
    /// What an outcome shows, by name, in its order.
    pub shown: Vec<(String, Shown)>,
    /// The outcome that the test is about.
    pub asked: Asked,
}

/// A word of memory.
#[derive(Debug)]
pub struct Location {
    /// Whose it is.
    pub node: String,
    /// What it holds at first.
    pub initial: u64,
    /// Registered with `IBV_ACCESS_RELAXED_ORDERING`.
    pub relaxed: bool,
}

/// One end of a queue pair.
#[derive(Debug)]
pub struct End {
    /// The node it is at.
    pub node: String,
    /// The other end.
    pub peer: usize,
}

/// What an outcome shows.
#[derive(Clone, Copy, Debug)]
pub enum Shown {
    /// What a register holds.
    Register(usize),
    /// What a location holds when nothing is under way any more.
    Memory(usize),
}

/// An outcome, and what its author says of it.
#[derive(Debug, Default)]
pub struct Asked {
    /// The values, in the order of [`Program::shown`].
    pub values: Vec<u64>,
    /// By the authority's name: `allowed`, `forbidden` or `outside`.
    pub said: BTreeMap<String, String>,
}

/// One step of a thread.
#[derive(Debug)]
pub enum Statement {
    /// The processor stores.
    Store(usize, u64),
    /// The processor loads to a register.
    Load(usize, usize),
    /// The processor loads until it sees the value.
    Await(usize, u64),
    /// The processor adds atomically.
    Add(usize, u64),
    /// The processor waits until its stores can be seen.
    Fence,
    /// Work is posted.
    Post(usize, Request),
    /// The next completion of the send queue; whether it failed goes to the register.
    Poll(usize, Option<usize>),
    /// The next completion of the receive queue.
    Receive(usize),
    /// Something is told without RDMA, through the kernel.
    Tell(usize),
    /// It is heard.
    Hear(usize),
    /// A window is deallocated by a call.
    Revoke(usize),
}

/// A work request.
#[derive(Debug)]
pub struct Request {
    /// What is to be done.
    pub verb: Verb,
    /// It has `IBV_SEND_FENCE`.
    pub fence: bool,
    /// The window by which memory is reached; none: the region's own key.
    pub window: Option<usize>,
}

/// The kind of a work request, with its locations.
#[derive(Debug)]
pub enum Verb {
    /// RDMA WRITE of words: there, here.
    Put(Vec<(usize, usize)>),
    /// RDMA WRITE of one word, with immediate data.
    PutImmediate(usize, usize),
    /// RDMA READ: here, there.
    Get(usize, usize),
    /// Atomic fetch-and-add: here, there.
    FetchAdd(usize, usize, u64),
    /// Atomic compare-and-swap: here, there, what is expected, what replaces it.
    CompareSwap(usize, usize, u64, u64),
    /// RDMA FLUSH with global visibility.
    Flush,
    /// SEND, which may invalidate a window there.
    Send(Option<usize>),
    /// Bind of a window.
    Bind(usize),
    /// LOCAL_INV of a window.
    Invalidate(usize),
}

impl Program {
    /// Reads a program.
    ///
    /// # Errors
    ///
    /// Says which line is not of the language, and why.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut parser = Parser::default();
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
            parser.line(line).map_err(|why| format!("`{line}`: {why}"))?;
        }
        let (shown, asked) = (parser.program.shown.len(), parser.program.asked.values.len());
        if shown == 0 || shown != asked {
            return Err(format!("{shown} values are shown, {asked} asked about"));
        }
        parser.program.registers = parser.registers.0.len();
        parser.program.channels = parser.channels.0.len();
        Ok(parser.program)
    }

    /// The nodes, each once, in the order in which the program names them.
    pub fn nodes(&self) -> Vec<&str> {
        let mut nodes = Vec::new();
        for location in &self.locations {
            if !nodes.contains(&&*location.node) {
                nodes.push(&*location.node);
            }
        }
        nodes
    }

    /// Whether the published model has all that this program does.
    pub fn is_of_the_model(&self) -> bool {
        let of_it = |statement: &Statement| match statement {
            Statement::Post(_, request) => {
                let one = match &request.verb {
                    Verb::Put(words) => words.len() == 1,
                    Verb::Get(..) | Verb::FetchAdd(..) | Verb::CompareSwap(..) => true,
                    _ => false,
                };
                one && request.window.is_none()
            }
            Statement::Receive(_) | Statement::Revoke(_) => false,
            _ => true,
        };
        let plain = self.locations.iter().all(|location| !location.relaxed);
        plain && self.threads.iter().flatten().all(of_it)
    }
}

/// Names in the order of their numbers.
#[derive(Default)]
struct Names(Vec<String>);

impl Names {
    fn find(&self, name: &str) -> Option<usize> {
        self.0.iter().position(|it| it == name)
    }

    fn known(&self, name: &str) -> Result<usize, String> {
        self.find(name).ok_or_else(|| format!("{name} is not declared"))
    }

    fn declare(&mut self, name: &str) -> Result<usize, String> {
        match self.find(name) {
            Some(_) => Err(format!("{name} is declared twice")),
            None => Ok(self.any(name)),
        }
    }

    /// Declares it if it is not.
    fn any(&mut self, name: &str) -> usize {
        self.find(name).unwrap_or_else(|| {
            self.0.push(name.to_owned());
            self.0.len() - 1
        })
    }
}

#[derive(Default)]
struct Parser {
    program: Program,
    locations: Names,
    windows: Names,
    registers: Names,
    channels: Names,
    /// A queue pair's name and the node, of each end.
    ends: Vec<(String, String)>,
}

impl Parser {
    fn line(&mut self, line: &str) -> Result<(), String> {
        if let Some((node, statements)) = line.split_once(':') {
            let statements = statements.split(';').map(|it| self.statement(node, it.trim()));
            let statements = statements.collect::<Result<_, String>>()?;
            self.program.threads.push(statements);
            self.program.thread_nodes.push(node.to_owned());
            return Ok(());
        }
        let words: Vec<_> = line.split_whitespace().collect();
        match words[..] {
            ["memory", node, "relaxed", ref names @ ..] => self.memory(node, true, names),
            ["memory", node, ref names @ ..] => self.memory(node, false, names),
            ["window", name, location, state @ ("bound" | "free")] => {
                self.windows.declare(name)?;
                let location = self.locations.known(location)?;
                self.program.windows.push((location, state == "bound"));
                Ok(())
            }
            ["qp", name, one, other] => {
                let first = self.ends.len();
                for (node, peer) in [(one, first + 1), (other, first)] {
                    self.ends.push((name.to_owned(), node.to_owned()));
                    self.program.ends.push(End { node: node.to_owned(), peer });
                }
                Ok(())
            }
            ["show", ref names @ ..] => {
                for name in names {
                    let shown = match self.locations.find(name) {
                        Some(location) => Shown::Memory(location),
                        None => Shown::Register(self.registers.known(name)?),
                    };
                    self.program.shown.push(((*name).to_owned(), shown));
                }
                Ok(())
            }
            ["ask", ref words @ ..] => {
                for word in words {
                    match word.split_once('=') {
                        Some((authority, said)) => {
                            let said = (authority.to_owned(), said.to_owned());
                            self.program.asked.said.extend([said]);
                        }
                        None => self.program.asked.values.push(number(word)?),
                    }
                }
                Ok(())
            }
            _ => Err("no such line".to_owned()),
        }
    }

    fn memory(&mut self, node: &str, relaxed: bool, names: &[&str]) -> Result<(), String> {
        for name in names {
            let (name, initial) = name.split_once('=').unwrap_or((name, "0"));
            self.locations.declare(name)?;
            let (node, initial) = (node.to_owned(), number(initial)?);
            self.program.locations.push(Location { node, initial, relaxed });
        }
        Ok(())
    }

    fn statement(&mut self, node: &str, text: &str) -> Result<Statement, String> {
        let mut words: Vec<_> = text.split_whitespace().collect();
        let fence = words.last() == Some(&"fence") && words.len() > 1;
        if fence {
            words.pop();
        }
        let mut window = None;
        if let [ref rest @ .., "by", name] = words[..] {
            window = Some(self.windows.known(name)?);
            words = rest.to_vec();
        }
        let here = |parser: &Self, name: &str| parser.at(node, true, name);
        let there = |parser: &Self, name: &str| parser.at(node, false, name);
        let verb = match words[..] {
            ["store", to, value] => return Ok(Statement::Store(here(self, to)?, number(value)?)),
            ["load", register, from] => {
                return Ok(Statement::Load(self.registers.any(register), here(self, from)?));
            }
            ["await", at, value] => return Ok(Statement::Await(here(self, at)?, number(value)?)),
            ["add", to, value] => return Ok(Statement::Add(here(self, to)?, number(value)?)),
            ["mfence"] => return Ok(Statement::Fence),
            ["poll", qp] => return Ok(Statement::Poll(self.end(node, qp)?, None)),
            ["poll", qp, register] => {
                let register = Some(self.registers.any(register));
                return Ok(Statement::Poll(self.end(node, qp)?, register));
            }
            ["recv", qp] => return Ok(Statement::Receive(self.end(node, qp)?)),
            ["tell", channel] => return Ok(Statement::Tell(self.channels.any(channel))),
            ["hear", channel] => return Ok(Statement::Hear(self.channels.any(channel))),
            ["revoke", name] => return Ok(Statement::Revoke(self.windows.known(name)?)),
            ["put", _, to, from] => {
                let pairs = to.split(',').zip(from.split(','));
                let pairs = pairs.map(|(to, from)| Ok((there(self, to)?, here(self, from)?)));
                Verb::Put(pairs.collect::<Result<_, String>>()?)
            }
            ["putimm", _, to, from] => Verb::PutImmediate(there(self, to)?, here(self, from)?),
            ["get", _, to, from] => Verb::Get(here(self, to)?, there(self, from)?),
            ["faa", _, to, at, value] => {
                Verb::FetchAdd(here(self, to)?, there(self, at)?, number(value)?)
            }
            ["cas", _, to, at, old, new] => {
                let (old, new) = (number(old)?, number(new)?);
                Verb::CompareSwap(here(self, to)?, there(self, at)?, old, new)
            }
            ["flush", _] => Verb::Flush,
            ["send", _] => Verb::Send(None),
            ["sendinv", _, name] => Verb::Send(Some(self.windows.known(name)?)),
            ["bind", _, name] => Verb::Bind(self.windows.known(name)?),
            ["inv", _, name] => Verb::Invalidate(self.windows.known(name)?),
            _ => return Err(format!("no such statement: `{text}`")),
        };
        Ok(Statement::Post(self.end(node, words[1])?, Request { verb, fence, window }))
    }

    /// A location at this node, or at another one.
    fn at(&self, node: &str, here: bool, name: &str) -> Result<usize, String> {
        let location = self.locations.known(name)?;
        if (self.program.locations[location].node == node) == here {
            Ok(location)
        } else {
            Err(format!("{name} is on the wrong node"))
        }
    }

    fn end(&self, node: &str, qp: &str) -> Result<usize, String> {
        let end = self.ends.iter().position(|(name, at)| name == qp && at == node);
        end.ok_or_else(|| format!("{qp} has no end at {node}"))
    }
}

fn number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("{text} is not a number"))
}
