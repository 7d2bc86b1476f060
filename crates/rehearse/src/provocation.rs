//! The provocations.

/// The sort of a provocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sort {
    /// The device does something later, earlier or otherwise than Transom does by itself. Adapters may do so. A correct
    /// program does not notice.
    Moment,
    /// Transom gives less than it does by itself. It gives all that is promised. A correct program does not notice.
    Mercy,
    /// A call fails, or work does, as they may. A correct program ends in good order, or goes on.
    Failure,
}

macro_rules! provocations {
    ($(
        $(#[$doc:meta])*
        $provocation:ident $name:literal $rule:literal $sort:ident $operation:literal $what:literal $promise:literal;
    )+) => {
        /// Something that an adapter may do, and Transom does not do by itself.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Provocation {
            $($(#[$doc])* $provocation,)+
        }

        impl Provocation {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$provocation,)+];

            /// Those that change where the bytes of messages are, and when.
            pub const PLACEMENT: [Self; 10] = [
                Self::ScribbledTargets,
                Self::ScribbledReceives,
                Self::ScrambledBytes,
                Self::RepeatedBytes,
                Self::ScrambledMessages,
                Self::UnseenWrites,
                Self::RelaxedOrdering,
                Self::PassedReads,
                Self::TornSources,
                Self::SplitAtomics,
            ];

            /// Its name for users, such as `late-work`.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$provocation => $name,)+
                }
            }

            /// Its rule in `spec/rules.md`, such as `REH-10`.
            pub const fn rule(self) -> &'static str {
                match self {
                    $(Self::$provocation => $rule,)+
                }
            }

            /// Its sort.
            pub const fn sort(self) -> Sort {
                match self {
                    $(Self::$provocation => Sort::$sort,)+
                }
            }

            /// The operation that a place counts, and its object, if it has one.
            pub const fn operation(self) -> (&'static str, Option<&'static str>) {
                let operation = match self {
                    $(Self::$provocation => $operation,)+
                };
                match self {
                    Self::LateWork
                    | Self::RefusedPosts
                    | Self::PortOutages
                    | Self::RemovedDevices
                    | Self::ScribbledTargets
                    | Self::PoisonedAttributes
                    | Self::KeptCompletions
                    | Self::PoisonedHeaders
                    | Self::SlowFlush
                    | Self::FailedRequests
                    | Self::GonePeers
                    | Self::StuckWork
                    | Self::FailedReceives
                    | Self::ScrambledBytes
                    | Self::RepeatedBytes
                    | Self::ScrambledMessages
                    | Self::UnseenWrites
                    | Self::RelaxedOrdering
                    | Self::PassedReads
                    | Self::TornSources
                    | Self::SplitAtomics
                    | Self::LostMessages => (operation, Some("queue pair")),
                    Self::HiddenCompletions
                    | Self::SingleCompletions
                    | Self::PoisonedFields
                    | Self::SilentArming
                    | Self::LateEvents => (operation, Some("completion queue")),
                    Self::LateAsyncEvents => (operation, Some("context")),
                    Self::RefusedReceives | Self::ScribbledReceives => (operation, Some("receive queue")),
                    Self::RefusedConnections
                    | Self::EarlyData
                    | Self::LateDisconnects
                    | Self::LateTimewaits
                    | Self::LateAddresses
                    | Self::AddressChanges => (operation, Some("id")),
                    Self::ExactSizes
                    | Self::NumbersAgain
                    | Self::DifferentKeys
                    | Self::KeptWindowKeys
                    | Self::SmallMtu
                    | Self::ScatteredNumbers
                    | Self::RefusedEmptyRegions
                    | Self::ShutRegions
                    | Self::RefusedEarlyRequests
                    | Self::SlowVerbs
                    | Self::RefusedObjects => (operation, None),
                }
            }

            /// Whether requests go another way where it may happen, also those to which it does not. Then it matters
            /// to what else happens.
            pub const fn changes_the_way(self) -> bool {
                matches!(
                    self,
                    Self::UnseenWrites
                        | Self::RelaxedOrdering
                        | Self::SplitAtomics
                        | Self::LostMessages
                )
            }

            /// What the device does: a phrase for a list.
            pub const fn what(self) -> &'static str {
                match self {
                    $(Self::$provocation => $what,)+
                }
            }

            /// Who allows it: a man page, or a section of the specification.
            pub const fn promise(self) -> &'static str {
                match self {
                    $(Self::$provocation => $promise,)+
                }
            }
        }
    };
}

provocations! {
    /// A send queue begins a request microseconds to milliseconds after the post.
    LateWork "late-work" "REH-10" Moment "post"
        "a send queue begins a request late"
        "ibv_post_send(3)";
    /// A poll finds nothing, as if the completions came a moment later.
    HiddenCompletions "hidden-completions" "REH-11" Moment "poll"
        "a poll finds nothing, as if the completions came a moment later"
        "ibv_poll_cq(3)";
    /// A poll gives one completion, as if the next ones came a moment later.
    SingleCompletions "single-completions" "REH-12" Moment "poll"
        "a poll gives one completion, as if the others came a moment later"
        "ibv_poll_cq(3)";
    /// The target of a READ changes as soon as it is posted.
    ScribbledTargets "scribbled-targets" "REH-13" Moment "READ"
        "the target of a READ holds rubbish from its post until its success"
        "ibv_post_send(3)";
    /// The buffers of a receive change as soon as it is posted.
    ScribbledReceives "scribbled-receives" "REH-63" Moment "receive"
        "the buffers of a receive hold rubbish from its post until its message comes"
        "ibv_post_recv(3)";
    /// A completion event comes late, so that its completion may have been polled.
    LateEvents "late-events" "REH-14" Moment "event"
        "a completion event comes late, perhaps after its completion was polled"
        "ibv_get_cq_event(3)";
    /// An asynchronous event comes late, with those that follow it.
    LateAsyncEvents "late-async-events" "REH-15" Moment "event"
        "an asynchronous event comes late, together with the next ones"
        "ibv_get_async_event(3)";
    /// An address or a route of rdma_cm is resolved late.
    LateAddresses "late-addresses" "REH-86" Moment "step"
        "an address or a route is resolved late, and the step after it is refused until then"
        "rdma_resolve_addr(3), rdma_resolve_route(3)";
    /// The first message of a peer comes before the confirmation of its connection.
    EarlyData "early-data" "REH-16" Moment "confirmation"
        "ESTABLISHED comes late, and the peer's first message before it"
        "rdma_notify(3)";
    /// The message that ends a connection comes late.
    LateDisconnects "late-disconnects" "REH-17" Moment "end"
        "DISCONNECTED comes late, after the requests that were flushed"
        "rdma_disconnect(3)";
    /// The time wait behind a connection takes long.
    LateTimewaits "late-timewaits" "REH-19" Moment "end of a time wait"
        "TIMEWAIT_EXIT comes late, up to seconds after the end of a connection"
        "rdma_get_cm_event(3)";
    /// Work of a queue pair in ERR is flushed over milliseconds.
    SlowFlush "slow-flush" "REH-70" Moment "flush"
        "what is flushed completes over milliseconds, one by one and in bursts"
        "ibv_poll_cq(3)";
    /// The address of a connection changes.
    AddressChanges "address-changes" "REH-18" Moment "connection"
        "ADDR_CHANGE comes to an id that is connected, which stays so"
        "rdma_get_cm_event(3)";
    /// A verb that makes an object, or changes one, takes long.
    SlowVerbs "slow-verbs" "REH-71" Moment "verb"
        "a verb that makes an object or changes a queue pair takes long"
        "ibv_modify_qp(3), ibv_reg_mr(3)";
    /// Some bytes of a WRITE or READ land at its post, and the others late.
    ScrambledBytes "scrambled-bytes" "REH-60" Moment "WRITE or READ"
        "some bytes of a WRITE or READ land late, often all but the last ones"
        "ibv_query_qp_data_in_order(3)";
    /// The bytes of a WRITE or READ land twice.
    RepeatedBytes "repeated-bytes" "REH-61" Moment "WRITE or READ"
        "the bytes of a WRITE or READ land again, until it completes"
        "ibv_post_send(3)";
    /// Some bytes of a message that arrives land before the others.
    ScrambledMessages "scrambled-messages" "REH-62" Moment "message"
        "some bytes of an arriving message land late, often all but the last ones"
        "ibv_query_qp_data_in_order(3)";
    /// A WRITE completes, and nobody there sees its data yet.
    UnseenWrites "unseen-writes" "REH-90" Moment "WRITE"
        "a WRITE completes before the data is seen there"
        "ibv_reg_mr(3)";
    /// WRITEs of one queue pair are seen in another order.
    RelaxedOrdering "relaxed-ordering" "REH-91" Moment "WRITE"
        "a WRITE to memory of relaxed ordering is seen after later ones"
        "ibv_reg_mr(3)";
    /// A WRITE or atomic is carried out before an earlier READ.
    PassedReads "passed-reads" "REH-92" Moment "READ or atomic"
        "a READ or atomic is passed by what is posted behind it without a fence"
        "ibv_wr_post(3)";
    /// What a message sends is read in two moments.
    TornSources "torn-sources" "REH-93" Moment "SEND or WRITE"
        "the source of a message is read in two moments before it completes"
        "ibv_post_send(3)";
    /// A processor's store between the two steps of an atomic is lost.
    SplitAtomics "split-atomics" "REH-94" Moment "atomic"
        "what a processor stores between the two steps of an atomic is lost"
        "ibv_wr_post(3)";
    /// A message of UC or UD is lost.
    LostMessages "lost-messages" "REH-65" Moment "message of UC or UD"
        "a message of UC or UD is lost, and its request succeeds"
        "ibv_create_qp(3)";
    /// The fields of a completion that mean nothing hold rubbish.
    PoisonedFields "poisoned-fields" "REH-20" Mercy "completion"
        "fields of a completion that mean nothing hold rubbish"
        "ibv_poll_cq(3)";
    /// Arming raises no event for completions that are there already.
    SilentArming "silent-arming" "REH-21" Mercy "arming"
        "arming raises no event for completions that are there already"
        "ibv_req_notify_cq(3)";
    /// A queue takes as much as was asked for, and no more.
    ExactSizes "exact-sizes" "REH-22" Mercy "sizing"
        "queues, SGEs and inline data are as asked for, not more"
        "ibv_create_qp(3), ibv_create_cq(3), ibv_create_srq(3)";
    /// Attributes of a queue pair that a query does not ask for hold rubbish.
    PoisonedAttributes "poisoned-attributes" "REH-23" Mercy "query"
        "attributes that ibv_query_qp was not asked for hold rubbish"
        "ibv_query_qp(3)";
    /// The bytes before the IPv4 header of a received datagram hold rubbish.
    PoisonedHeaders "poisoned-headers" "REH-25" Mercy "datagram"
        "the first 20 bytes of a datagram by IPv4, which mean nothing, hold rubbish"
        "ibv_post_recv(3)";
    /// The completions of a queue pair outlive it.
    KeptCompletions "kept-completions" "REH-85" Mercy "end"
        "the completions of a queue pair that is destroyed stay, and polls find them"
        "ibv_destroy_qp(3)";
    /// A new queue pair, region or window has the number or key that came free last.
    NumbersAgain "numbers-again" "REH-24" Mercy "number"
        "the next queue pair number or key is the one that came free last"
        "ibv_create_qp(3), ibv_reg_mr(3)";
    /// L_Keys differ from R_Keys.
    DifferentKeys "different-keys" "REH-26" Mercy "opening"
        "the L_Key of a region is not its R_Key, and neither does for the other"
        "ibv_reg_mr(3)";
    /// A post leaves the key in the window as it was.
    KeptWindowKeys "kept-window-keys" "REH-27" Mercy "bind"
        "the post of a type 2 bind leaves mw->rkey as it was"
        "ibv_post_send(3)";
    /// The MTU of the port is that of an Ethernet.
    SmallMtu "small-mtu" "REH-28" Mercy "opening"
        "the active MTU is 1024 at most, as by Ethernet, and nothing longer is taken"
        "ibv_query_port(3)";
    /// New queue pairs have numbers anywhere.
    ScatteredNumbers "scattered-numbers" "REH-29" Mercy "queue pair"
        "the numbers of queue pairs do not count up"
        "ibv_create_qp(3)";
    /// A region of no bytes is refused.
    RefusedEmptyRegions "refused-empty-regions" "REH-82" Mercy "registration"
        "a region of no bytes is refused with EINVAL"
        "ibv_reg_mr(3)";
    /// Nobody gets into a region whose registration is changed.
    ShutRegions "shut-regions" "REH-87" Mercy "change"
        "nobody gets into a region while ibv_rereg_mr changes it, and that takes milliseconds"
        "ibv_rereg_mr(3)";
    /// A request for a connection does not wait for its listener.
    RefusedEarlyRequests "refused-early-requests" "REH-83" Mercy "opening"
        "a request is refused at once if nobody listens yet"
        "rdma_listen(3), rdma_get_cm_event(3)";
    /// A verb that makes an object fails, for want of room or of a right.
    RefusedObjects "refused-objects" "REH-30" Failure "object"
        "a verb that makes an object fails with ENOMEM, EAGAIN or EPERM"
        "ibv_create_qp(3), ibv_reg_mr(3), rdma_create_id(3)";
    /// A post is refused with ENOMEM, at one element of its list.
    RefusedPosts "refused-posts" "REH-31" Failure "request"
        "a post fails with ENOMEM at one element of its list"
        "ibv_post_send(3)";
    /// A post of receives is refused with ENOMEM, at one element of its list.
    RefusedReceives "refused-receives" "REH-32" Failure "receive"
        "a post of receives fails with ENOMEM at one element of its list"
        "ibv_post_recv(3)";
    /// A request completes with an error, and its queue pair goes to ERR or SQE.
    FailedRequests "failed-requests" "REH-34" Failure "request"
        "a request ends in an error that it may have, and those behind it are flushed"
        "ibv_poll_cq(3)";
    /// A receive completes with an error, and its queue pair goes to ERR.
    FailedReceives "failed-receives" "REH-35" Failure "message"
        "the receive of a message ends in an error that it may have"
        "ibv_poll_cq(3)";
    /// All peers of a process are gone, as if their hosts had died.
    GonePeers "gone-peers" "REH-36" Failure "post"
        "all peers of the process are gone at once, and nothing tells it"
        "ibv_modify_qp(3)";
    /// A send queue begins a request after the program's own time-out.
    StuckWork "stuck-work" "REH-37" Failure "post"
        "a request begins seconds late, perhaps after the program's own time-out"
        "ibv_post_send(3)";
    /// A step towards a connection fails, most by the event that says so.
    RefusedConnections "refused-connections" "REH-33" Failure "step"
        "a port, a group, an address, a route or a connection comes to nothing"
        "rdma_get_cm_event(3)";
    /// The port goes down for a while.
    PortOutages "port-outages" "REH-80" Failure "post"
        "the port goes down for some milliseconds: PORT_ERR, then PORT_ACTIVE"
        "ibv_get_async_event(3)";
    /// The device goes, at a post.
    RemovedDevices "removed-devices" "REH-81" Failure "post"
        "the device is removed: DEVICE_FATAL, and DEVICE_REMOVAL for each id"
        "ibv_get_async_event(3), rdma_get_cm_event(3)";
}

impl Provocation {
    /// The provocation with a name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|it| it.name() == name)
    }

    /// Its number, which decisions depend on. It is made of the name, so that a new provocation changes no decision of
    /// the others.
    pub(crate) fn number(self) -> u64 {
        let fold =
            |number: u64, byte: u8| (number ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        self.name().bytes().fold(0xcbf2_9ce4_8422_2325, fold)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_and_numbers_differ() {
        for one in Provocation::ALL {
            assert_eq!(Provocation::named(one.name()), Some(*one));
            let same = Provocation::ALL.iter().filter(|other| other.number() == one.number());
            assert_eq!(same.count(), 1, "{one:?}");
        }
        assert_eq!(Provocation::named("nothing"), None);
    }
}
