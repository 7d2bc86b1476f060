//! A device as a user describes it: its name, its port, and its place in the machine.
//!
//! ```text
//! mlx5_0,port=down,speed=200G,numa=1,pci=0000:81:00.0,netdev=eth1
//! ```

use std::fmt;
use std::str::FromStr;
use std::sync::OnceLock;

use transom_system::addresses::is_interface;
use transom_system::environment::{DEVICE_NAME, DEVICES};
use transom_system::registry;

use crate::device_name::{DeviceName, NotAName};

/// A device of a program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Description {
    /// Its name.
    pub name: DeviceName,
    /// Its port is down, and stays so.
    pub port_is_down: bool,
    /// The speed that its port reports. Nothing gets faster or slower by it.
    pub speed: Speed,
    /// The NUMA node that it is near to. Without one, it is the machine's only node, or none.
    pub numa_node: Option<u32>,
    /// Its place on the PCI bus, for programs that tell devices apart by it. Nothing is there.
    pub pci: Option<PciAddress>,
    /// The network interface whose addresses it has. Without one, it has those of all.
    pub netdev: Option<InterfaceName>,
}

impl Description {
    /// A device of this name that is like any other.
    pub fn plain(name: DeviceName) -> Self {
        Self { name, ..Self::default() }
    }

    /// The name of its network interface, if it has the addresses of one only.
    pub fn interface(&self) -> Option<&str> {
        self.netdev.as_ref().map(|InterfaceName(name)| name.as_str())
    }

    /// The devices of this process, by number. They are read from the environment once. If it names none, there is one.
    ///
    /// # Errors
    /// The environment describes no devices.
    pub fn chosen() -> Result<&'static [Self], NotChosen> {
        static CHOSEN: OnceLock<Result<Vec<Description>, NotChosen>> = OnceLock::new();
        let chosen = CHOSEN.get_or_init(|| {
            let (variable, read) = match (DEVICES.text(), DEVICE_NAME.text()) {
                (Some(all), _) => (DEVICES.name, Self::list(&all.to_string_lossy())),
                (None, Some(name)) => {
                    let name = name.to_string_lossy().parse::<DeviceName>();
                    (DEVICE_NAME.name, name.map(|it| vec![Self::plain(it)]).map_err(Into::into))
                }
                (None, None) => return Ok(vec![Self::default()]),
            };
            read.map_err(|cause| NotChosen { variable, cause })
        });
        chosen.as_deref().map_err(Clone::clone)
    }

    /// Several, with `;` between them.
    fn list(text: &str) -> Result<Vec<Self>, NotADevice> {
        let all = text.split(';').map(str::parse).collect::<Result<Vec<_>, _>>()?;
        Self::check_all(&all).map(|()| all)
    }

    /// Checks that one program can have all these devices.
    ///
    /// # Errors
    /// There are too many, or two have the same name or place.
    pub fn check_all(all: &[Self]) -> Result<(), NotADevice> {
        if all.len() > registry::DEVICES {
            return Err(NotADevice::TooMany);
        }
        for (index, device) in all.iter().enumerate() {
            let before = &all[..index];
            if before.iter().any(|other| other.name == device.name) {
                return Err(NotADevice::Twice(device.name.to_string()));
            }
            let place = device.pci.filter(|pci| before.iter().any(|it| it.pci == Some(*pci)));
            if let Some(place) = place {
                return Err(NotADevice::Twice(place.to_string()));
            }
        }
        Ok(())
    }

    /// Checks that what it has of this host is there.
    ///
    /// # Errors
    /// Its network interface is not there.
    pub fn check_here(&self) -> Result<(), NotADevice> {
        match self.interface() {
            Some(name) if !is_interface(name) => Err(NotADevice::NotHere(name.to_owned())),
            _ => Ok(()),
        }
    }
}

impl fmt::Display for Description {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.name)?;
        if self.port_is_down {
            f.write_str(",port=down")?;
        }
        if self.speed != Speed::default() {
            write!(f, ",speed={}", self.speed)?;
        }
        if let Some(node) = self.numa_node {
            write!(f, ",numa={node}")?;
        }
        if let Some(pci) = self.pci {
            write!(f, ",pci={pci}")?;
        }
        if let Some(InterfaceName(name)) = &self.netdev {
            write!(f, ",netdev={name}")?;
        }
        Ok(())
    }
}

impl FromStr for Description {
    type Err = NotADevice;

    fn from_str(text: &str) -> Result<Self, NotADevice> {
        let mut words = text.split(',');
        let name = words.next().unwrap_or_default().parse()?;
        let mut device = Self::plain(name);
        let mut keys = Vec::new();
        for word in words {
            let refused = || NotADevice::Word(word.to_owned());
            let (key, value) = word.split_once('=').ok_or_else(refused)?;
            if keys.contains(&key) {
                return Err(NotADevice::Twice(key.to_owned()));
            }
            keys.push(key);
            match (key, value) {
                ("port", "down") => device.port_is_down = true,
                ("port", "up") => {}
                ("speed", _) => device.speed = value.parse()?,
                ("numa", _) => device.numa_node = Some(value.parse().map_err(|_| refused())?),
                ("pci", _) => device.pci = Some(value.parse()?),
                ("netdev", _) => device.netdev = Some(value.parse()?),
                _ => return Err(refused()),
            }
        }
        Ok(device)
    }
}

/// The speed of a port, in Gbit/s.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Speed(u16);

impl Speed {
    /// All of them, each with the codes of width and speed that Linux gives to an Ethernet port: so many lanes of so
    /// much each.
    const ALL: [(Self, u8, u8); 9] = [
        (Self(10), 1, 4),
        (Self(25), 1, 32),
        (Self(40), 2, 4),
        (Self(50), 1, 64),
        (Self(56), 2, 16),
        (Self(100), 2, 32),
        (Self(200), 2, 64),
        (Self(400), 2, 128),
        (Self(800), 4, 128),
    ];

    /// `active_width` and `active_speed` of `ibv_query_port(3)`.
    pub fn codes(self) -> (u8, u8) {
        let found = Self::ALL.into_iter().find(|(speed, ..)| *speed == self);
        found.map_or((2, 32), |(_, width, speed)| (width, speed))
    }
}

impl Default for Speed {
    /// 100 Gbit/s.
    fn default() -> Self {
        Self(100)
    }
}

impl fmt::Display for Speed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}G", self.0)
    }
}

impl FromStr for Speed {
    type Err = NotADevice;

    fn from_str(text: &str) -> Result<Self, NotADevice> {
        let mut known = Self::ALL.into_iter().map(|(speed, ..)| speed);
        known
            .find(|speed| speed.to_string() == text)
            .ok_or_else(|| NotADevice::Speed(text.to_owned()))
    }
}

/// A place on the PCI bus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PciAddress {
    domain: u16,
    bus: u8,
    device: u8,
    function: u8,
}

impl fmt::Display for PciAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { domain, bus, device, function } = self;
        write!(f, "{domain:04x}:{bus:02x}:{device:02x}.{function}")
    }
}

impl FromStr for PciAddress {
    type Err = NotADevice;

    /// `0000:81:00.0`, or without the domain if that is zero.
    fn from_str(text: &str) -> Result<Self, NotADevice> {
        let parse = || -> Option<Self> {
            let hex = |text: &str, length: usize| -> Option<u16> {
                let digits = text.len() == length && text.bytes().all(|it| it.is_ascii_hexdigit());
                u16::from_str_radix(text, 16).ok().filter(|_| digits)
            };
            let (place, function) = text.split_once('.')?;
            let (place, device) = place.rsplit_once(':')?;
            let (domain, bus) = place.split_once(':').unwrap_or(("0000", place));
            let narrow =
                |number: u16, below: u16| u8::try_from(number).ok().filter(|_| number < below);
            Some(Self {
                domain: hex(domain, 4)?,
                bus: narrow(hex(bus, 2)?, 0x100)?,
                device: narrow(hex(device, 2)?, 0x20)?,
                function: narrow(hex(function, 1)?, 8)?,
            })
        };
        parse().ok_or_else(|| NotADevice::Pci(text.to_owned()))
    }
}

/// The name of a network interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterfaceName(String);

impl FromStr for InterfaceName {
    type Err = NotADevice;

    fn from_str(text: &str) -> Result<Self, NotADevice> {
        let is_of_a_name = |byte: u8| byte.is_ascii_graphic() && !b"/:,;".contains(&byte);
        let fits = (1..libc::IFNAMSIZ).contains(&text.len()) && !matches!(text, "." | "..");
        match fits && text.bytes().all(is_of_a_name) {
            true => Ok(Self(text.to_owned())),
            false => Err(NotADevice::Interface(text.to_owned())),
        }
    }
}

/// A text that describes no device, or no devices that go together.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the texts say it")]
pub enum NotADevice {
    #[error(transparent)]
    Name(#[from] NotAName),
    #[error("{0:?} is none of port=up, port=down, speed=, numa=NODE, pci=ADDRESS and netdev=NAME")]
    Word(String),
    #[error(
        "{0:?} is no speed of a port, which are 10G, 25G, 40G, 50G, 56G, 100G, 200G, 400G and 800G"
    )]
    Speed(String),
    #[error("{0:?} is no place on the PCI bus, such as 0000:81:00.0")]
    Pci(String),
    #[error("{0:?} is no name of a network interface, such as eth0")]
    Interface(String),
    #[error("there is no network interface {0}; `ip link` lists them")]
    NotHere(String),
    #[error("{0} is there twice")]
    Twice(String),
    #[error("a program can have {most} devices at most", most = registry::DEVICES)]
    TooMany,
}

/// The environment describes no devices.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{variable}: {cause}")]
pub struct NotChosen {
    variable: &'static str,
    #[source]
    cause: NotADevice,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_description_is_read_as_it_is_written() {
        for text in [
            "transom0",
            "mlx5_0,port=down",
            "rxe0,speed=25G",
            "mlx5_1,port=down,speed=800G,numa=1,pci=0000:81:00.0",
            "a,numa=0,pci=10a0:ff:1f.7",
            "a,port=down,netdev=eth0.7@x",
        ] {
            let device: Description = text.parse().unwrap();
            assert_eq!(device.to_string(), text);
        }
        let plain = "rxe0,port=up,speed=100G,pci=81:00.0".parse::<Description>().unwrap();
        assert_eq!(plain.to_string(), "rxe0,pci=0000:81:00.0");
    }

    #[test]
    fn what_describes_no_device_is_refused_with_a_reason() {
        for (text, reason) in [
            ("", "no name"),
            ("a/b", "no name"),
            ("a,b", "\"b\" is none of"),
            ("a,port=", "is none of"),
            ("a,port=off", "is none of"),
            ("a,numa=-1", "is none of"),
            ("a,numa=4294967296", "is none of"),
            ("a,speed=100", "no speed"),
            ("a,speed=1G", "no speed"),
            ("a,speed=+10G", "no speed"),
            ("a,pci=81:00", "no place"),
            ("a,pci=0000:81:20.0", "no place"),
            ("a,pci=0000:81:00.8", "no place"),
            ("a,pci=0000:+1:00.0", "no place"),
            ("a,pci=0:0000:81:00.0", "no place"),
            ("a,netdev=", "no name of a network interface"),
            ("a,netdev=eth/0", "no name of a network interface"),
            ("a,netdev=..", "no name of a network interface"),
            ("a,netdev=0123456789abcdef", "no name of a network interface"),
            ("a,port=up,port=down", "port is there twice"),
            ("a;a", "a is there twice"),
            ("a,pci=1:00.0;b,pci=1:00.0", "no place"),
            ("a,pci=01:00.0;b,pci=01:00.0", "0000:01:00.0 is there twice"),
            ("a;;b", "no name"),
        ] {
            let error = Description::list(text).unwrap_err().to_string();
            assert!(error.contains(reason), "{text:?}: {error}");
        }
        let many = |count| (0..count).map(|it| format!("a{it}")).collect::<Vec<_>>().join(";");
        assert_eq!(Description::list(&many(16)).unwrap().len(), 16);
        assert_eq!(Description::list(&many(17)), Err(NotADevice::TooMany));
    }
}
