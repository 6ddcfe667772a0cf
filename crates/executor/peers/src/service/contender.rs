//! The contenders.

/// A runtime, and how the service uses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contender {
    /// cops-executor: one runtime, a priority for each class.
    Cops,
    /// tokio's multi-thread runtime.
    Tokio,
    /// Two of them, one for each class, each with as many workers: what people do for want of
    /// priorities. The operating system shares the processors between them.
    TokioTwice,
}

impl Contender {
    /// All, in the order in which they run.
    pub const ALL: [Contender; 3] = [Contender::Cops, Contender::Tokio, Contender::TokioTwice];

    /// As on the command line and in the data.
    pub fn key(self) -> &'static str {
        match self {
            Contender::Cops => "cops",
            Contender::Tokio => "tokio",
            Contender::TokioTwice => "tokio-twice",
        }
    }

    /// As in tables.
    pub fn name(self) -> &'static str {
        match self {
            Contender::Cops => "cops-executor",
            Contender::Tokio => "tokio",
            Contender::TokioTwice => "tokio, a runtime for each class",
        }
    }

    /// The one of this key.
    pub fn from_key(key: &str) -> Option<Contender> {
        Contender::ALL.into_iter().find(|contender| contender.key() == key)
    }
}
