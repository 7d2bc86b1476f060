//! What a responder needs of a link that carries packets.

use transom_wire::packet::Packet;

use crate::execution::{Reply, Services, Sink};
use transom_wire::Psn;

/// A run of READ responses with consecutive numbers, one path MTU each but the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponseTrain {
    /// The number of the first.
    pub psn: Psn,
    /// Bytes of them all.
    pub length: u64,
    /// The first of them begins the READ's answer.
    pub begins: bool,
    /// The last of them ends it.
    pub ends: bool,
    /// Messages completed, for the AETHs (rule PSN-20).
    pub msn: u32,
}

/// The way back to the origin, beside [`Services`].
pub trait Outlet: Services {
    /// How many more packets the link takes now. When there is room again, the link has the queue
    /// pair's waiting responses sent.
    fn room(&self) -> usize;

    /// The path MTU in bytes.
    fn response_mtu(&self) -> u64;

    /// How many of the `rest` bytes of a READ one [`ResponseTrain`] takes: all of them, or a multiple of
    /// the path MTU.
    fn train_of(&self, rest: u64) -> u64;

    /// Sends a packet without data: an acknowledgement, a NAK, an atomic's answer. It waits for
    /// nothing: if there is no room, it is lost, as on a network.
    fn respond(&self, packet: &Packet<'_>);

    /// Keeps the packet that acknowledges the message about to be carried out, for
    /// [`Services::acknowledge`] to send on [`Reply::Ack`], before the program can see the completion.
    /// Answers what was kept and not sent.
    fn prepare(&self, acknowledgement: Option<Packet<'static>>) -> Option<Packet<'static>>;

    /// Sends the train with the data that `fill` copies to the sink it is handed, unless `fill`
    /// answers anything but [`Reply::Data`]: then nothing is sent. Answers what `fill` did, or
    /// [`Reply::Silence`] if there was no room for all of it: then it is asked again.
    fn respond_data(
        &self,
        train: &ResponseTrain,
        fill: &mut dyn FnMut(&mut dyn Sink) -> Reply,
    ) -> Reply;
}
