//! The shell's variables.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};

use command_line::parse::assignment;
use cops::process;

/// Where programs are looked for unless there is a variable `PATH`.
const PATH: &str = "/bin";

/// Variables by name, each with its value, and whether programs get it.
pub struct Variables {
    all: BTreeMap<String, (String, bool)>,
}

impl Variables {
    /// Those of the environment.
    pub fn inherited() -> Self {
        let strings = process::environment().filter_map(|bytes| core::str::from_utf8(bytes).ok());
        let variables = strings.filter_map(assignment);
        Self { all: variables.map(|(name, value)| (name.into(), (value.into(), true))).collect() }
    }

    /// The value of a variable; `?` and `$` are the status and the number of the shell.
    pub fn value(&self, name: &str, status: u8) -> Option<String> {
        match name {
            "?" => Some(status.to_string()),
            "$" => Some(process::id().to_string()),
            _ => self.all.get(name).map(|(value, _)| value.clone()),
        }
    }

    /// Sets a variable. Programs get it if they got it before.
    pub fn set(&mut self, name: &str, value: &str) {
        let (place, _) = self.all.entry(name.into()).or_default();
        *place = value.into();
    }

    /// From now on programs get the variable.
    pub fn export(&mut self, name: &str) {
        self.all.entry(name.into()).or_default().1 = true;
    }

    pub fn remove(&mut self, name: &str) {
        self.all.remove(name);
    }

    /// What programs get, as `NAME=value`.
    pub fn exported(&self) -> impl Iterator<Item = String> + '_ {
        let exported = self.all.iter().filter(|(_, (_, is_exported))| *is_exported);
        exported.map(|(name, (value, _))| format!("{name}={value}"))
    }

    /// The directories in which programs are looked for.
    pub fn path(&self) -> &str {
        self.all.get("PATH").map_or(PATH, |(value, _)| value)
    }
}
