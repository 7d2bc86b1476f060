//! Why a request was refused.

/// The reason in a REJ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names are those of the specification's table of reasons")]
pub enum RejectReason {
    NoQp,
    NoEec,
    NoResources,
    Timeout,
    Unsupported,
    InvalidCommId,
    InvalidCommInstance,
    /// Nobody listens.
    InvalidServiceId,
    InvalidTransportType,
    StaleConnection,
    RdcDoesNotExist,
    InvalidGid,
    InvalidLid,
    InvalidSl,
    InvalidTrafficClass,
    InvalidHopLimit,
    InvalidPacketRate,
    InvalidAlternateGid,
    InvalidAlternateLid,
    InvalidAlternateSl,
    InvalidAlternateTrafficClass,
    InvalidAlternateHopLimit,
    InvalidAlternatePacketRate,
    PortAndCmRedirection,
    PortRedirection,
    InvalidMtu,
    InsufficientResponderResources,
    /// A program refused, or has ended.
    Consumer,
    InvalidRnrRetry,
    DuplicateCommId,
    InvalidClassVersion,
    InvalidFlowLabel,
    InvalidAlternateFlowLabel,
    /// The vendor's options (ECE) ask for something that is not there.
    VendorOption,
    /// A number without a name here: none of those above.
    Other(OtherReason),
}

/// The number of a reason that has no name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OtherReason(u16);

impl RejectReason {
    /// Those with a name, and their numbers.
    const NAMED: [(u16, Self); 34] = [
        (1, Self::NoQp),
        (2, Self::NoEec),
        (3, Self::NoResources),
        (4, Self::Timeout),
        (5, Self::Unsupported),
        (6, Self::InvalidCommId),
        (7, Self::InvalidCommInstance),
        (8, Self::InvalidServiceId),
        (9, Self::InvalidTransportType),
        (10, Self::StaleConnection),
        (11, Self::RdcDoesNotExist),
        (12, Self::InvalidGid),
        (13, Self::InvalidLid),
        (14, Self::InvalidSl),
        (15, Self::InvalidTrafficClass),
        (16, Self::InvalidHopLimit),
        (17, Self::InvalidPacketRate),
        (18, Self::InvalidAlternateGid),
        (19, Self::InvalidAlternateLid),
        (20, Self::InvalidAlternateSl),
        (21, Self::InvalidAlternateTrafficClass),
        (22, Self::InvalidAlternateHopLimit),
        (23, Self::InvalidAlternatePacketRate),
        (24, Self::PortAndCmRedirection),
        (25, Self::PortRedirection),
        (26, Self::InvalidMtu),
        (27, Self::InsufficientResponderResources),
        (28, Self::Consumer),
        (29, Self::InvalidRnrRetry),
        (30, Self::DuplicateCommId),
        (31, Self::InvalidClassVersion),
        (32, Self::InvalidFlowLabel),
        (33, Self::InvalidAlternateFlowLabel),
        (35, Self::VendorOption),
    ];

    /// The reason of a number.
    pub fn from_code(code: u16) -> Self {
        let named = Self::NAMED.iter().find(|(number, _)| *number == code);
        named.map_or(Self::Other(OtherReason(code)), |(_, reason)| *reason)
    }

    /// The number.
    pub fn code(self) -> u16 {
        if let Self::Other(OtherReason(code)) = self {
            return code;
        }
        let named = Self::NAMED.iter().find(|(_, reason)| *reason == self);
        named.map_or(0, |(code, _)| *code)
    }
}

/// How the resolution of a service went, in a SIDR_REP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SidrStatus {
    /// 0: there is a queue pair.
    Valid,
    /// 1: nobody serves it.
    NotSupported,
    /// 2: the program said no.
    Rejected,
    /// 3: there is no queue pair.
    NoQp,
    /// 4: the service is elsewhere.
    Redirected,
    /// 5: the receiver has another version.
    VersionNotSupported,
    /// A number without a name here: none of those above.
    Other(OtherStatus),
}

/// The number of a status that has no name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OtherStatus(u8);

impl SidrStatus {
    /// The status of a number.
    pub const fn from_code(code: u8) -> Self {
        match code {
            0 => Self::Valid,
            1 => Self::NotSupported,
            2 => Self::Rejected,
            3 => Self::NoQp,
            4 => Self::Redirected,
            5 => Self::VersionNotSupported,
            other => Self::Other(OtherStatus(other)),
        }
    }

    /// The number.
    pub const fn code(self) -> u8 {
        match self {
            Self::Valid => 0,
            Self::NotSupported => 1,
            Self::Rejected => 2,
            Self::NoQp => 3,
            Self::Redirected => 4,
            Self::VersionNotSupported => 5,
            Self::Other(OtherStatus(code)) => code,
        }
    }
}
