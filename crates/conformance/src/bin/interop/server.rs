//! The end that carries out the other's requests.

use std::collections::VecDeque;

use transom::{Bound, MemoryRegion, Pages, Posted, Receiving, Slice, Type1, Type2, Window};

use crate::end::{End, Queue, digest, pattern, read, text, wait};
use crate::end::{HEADER, MEMORY};
use crate::talk::{Answer, Ask, Received, TIMEOUT, Talk, WindowType};

/// Answers until the peer has gone.
pub(crate) fn serve(end: &End, mut talk: Talk) -> Result<(), String> {
    let mut seat = None;
    while let Some(ask) = talk.hear()? {
        let answer = answer(end, &mut seat, ask).unwrap_or_else(Answer::Failed);
        talk.tell(&answer)?;
    }
    Ok(())
}

fn answer(end: &End, seat: &mut Option<Seat>, ask: Ask) -> Result<Answer, String> {
    match ask {
        Ask::Open(service) => {
            *seat = None;
            let made = Seat {
                window: None,
                receives: VecDeque::new(),
                datagram: None,
                queue: Some(end.queue_pair(service)?),
                memory: end.memory()?,
            };
            let endpoint = made.queue()?.endpoint();
            let grant = made.memory.grant();
            *seat = Some(made);
            Ok(Answer::Opened(endpoint, grant, end.device().to_owned()))
        }
        Ask::Close => {
            *seat = None;
            Ok(Answer::Done)
        }
        ask => seat.as_mut().ok_or("nothing is open")?.answer(end, ask),
    }
}

/// The objects that the peer has opened. The window is dropped before the queue pair that bound it, because some
/// devices take long in the other order.
struct Seat {
    window: Option<BoundWindow>,
    receives: VecDeque<Posted>,
    datagram: Option<Receiving>,
    queue: Option<Queue>,
    memory: MemoryRegion<Pages>,
}

enum BoundWindow {
    One(Window<Type1, Bound>),
    Two(Window<Type2, Bound>),
}

impl Seat {
    fn queue(&self) -> Result<&Queue, String> {
        self.queue.as_ref().ok_or_else(|| "there is no queue pair".into())
    }

    fn slice(&self, range: std::ops::Range<usize>) -> Result<Slice, String> {
        self.memory.slice(range).map_err(text)
    }

    fn answer(&mut self, end: &End, ask: Ask) -> Result<Answer, String> {
        match ask {
            Ask::Connect(peer) => {
                let queue = self.queue.take().ok_or("there is no queue pair")?;
                self.queue = Some(queue.connect(&peer)?);
            }
            Ask::Fill(seed) => {
                self.memory.write_at(0, &pattern(seed, 0..MEMORY)).map_err(text)?;
            }
            Ask::Receive(range) => {
                let slice = self.slice(range)?;
                let posted = self.queue()?.connected()?.receive(&[slice]).map_err(text)?;
                self.receives.push_back(posted);
            }
            Ask::Received => {
                let posted = self.receives.pop_front().ok_or("no receive is posted")?;
                let completion = wait(Ok(posted))?;
                return Ok(Answer::Received(Received {
                    length: completion.length(),
                    immediate: completion.immediate(),
                    invalidated: completion.invalidated_rkey(),
                }));
            }
            Ask::Digest(range) => {
                return Ok(Answer::Digest(digest(&read(&self.memory, range)?)));
            }
            Ask::Bind(window_type, range, rights) => {
                let slice = self.slice(range)?;
                let qp = self.queue()?.connected()?;
                let (window, grant) = match window_type {
                    WindowType::One => {
                        let window = Window::<Type1>::alloc(end.pd()).map_err(text)?;
                        let binding = window.bind(qp, &slice, rights).map_err(text)?;
                        let window = binding.wait().map_err(text)?;
                        let grant = window.grant();
                        (BoundWindow::One(window), grant)
                    }
                    WindowType::Two => {
                        let window = Window::<Type2>::alloc(end.pd()).map_err(text)?;
                        let binding = window.bind(qp, &slice, rights).map_err(text)?;
                        let window = binding.wait().map_err(text)?;
                        let grant = window.grant();
                        (BoundWindow::Two(window), grant)
                    }
                };
                self.window = Some(window);
                return Ok(Answer::Granted(grant));
            }
            Ask::Invalidate => {
                let window = self.window.take().ok_or("no window is bound")?;
                let qp = self.queue()?.connected()?;
                match window {
                    BoundWindow::One(window) => {
                        window.invalidate(qp).map_err(text)?.wait().map_err(text)?;
                    }
                    BoundWindow::Two(window) => {
                        window.invalidate(qp).map_err(text)?.wait().map_err(text)?;
                    }
                }
            }
            Ask::ReceiveDatagram => {
                let slice = self.slice(0..HEADER + 4096)?;
                self.datagram = Some(self.queue()?.datagram()?.receive(&slice).map_err(text)?);
            }
            Ask::Echo => {
                let mut receiving = self.datagram.take().ok_or("no receive is posted")?;
                let datagram = receiving.wait_timeout(TIMEOUT).map_err(text)?;
                let datagram = datagram.ok_or("no datagram came")?;
                let qp = self.queue()?.datagram()?;
                let sender = datagram.sender(qp, crate::end::QKEY).map_err(text)?;
                let payload = [datagram.payload()];
                let sent = match datagram.completion().immediate() {
                    Some(immediate) => qp.send_immediate(&sender, &payload, immediate),
                    None => qp.send(&sender, &payload),
                };
                wait(sent)?;
                return Ok(Answer::Received(Received {
                    length: datagram.len(),
                    immediate: datagram.completion().immediate(),
                    invalidated: None,
                }));
            }
            Ask::Open(_) | Ask::Close => unreachable!("answered before"),
        }
        Ok(Answer::Done)
    }
}
