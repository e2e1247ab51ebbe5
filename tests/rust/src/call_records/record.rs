//! A call as its client saw it, and a fault as the test caused it. Times are nanoseconds of `CLOCK_MONOTONIC`.

use serde_json::{Value, json};

use crate::decision_values::DecisionValues;

/// The operation of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Asks and charges.
    Check,
    /// Asks without charging.
    Peek,
    /// Charges, even if it does not fit.
    Charge,
    /// Gives back.
    Refund,
    /// Forgets the usage.
    Clear,
    /// Blocks the key for `Call::length`. A length of 0 ends a block.
    Block,
    /// Sets the override of the key if `Call::length` is 1, and removes it if it is 0.
    Override,
    /// Asks and charges all entries or none.
    CheckAll,
}

const NAMES: [(&str, Operation); 8] = [
    ("check", Operation::Check),
    ("peek", Operation::Peek),
    ("charge", Operation::Charge),
    ("refund", Operation::Refund),
    ("clear", Operation::Clear),
    ("block", Operation::Block),
    ("override", Operation::Override),
    ("check_all", Operation::CheckAll),
];

/// A call of a client.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Call {
    /// Its operation.
    pub operation: Operation,
    /// Policy, key and cost. A `check_all` has several.
    pub entries: Vec<(String, String, u64)>,
    /// The length of a block in microseconds. For an override 1 if it is set, else 0.
    pub length: u64,
}

/// The answer that the caller got.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// A Decision of the store, with the store's time in microseconds if the Decision has it.
    Decided {
        /// The store's time.
        at: Option<u64>,
        /// Its values.
        values: Box<DecisionValues>,
    },
    /// The call was done and has no Decision.
    Done,
    /// A Decision that did not come from the store. It is no part of the shared history.
    Local,
    /// An error with this code. The call may have run, at any time from its begin on.
    Failed(String),
}

/// One line of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallRecord {
    /// The client's name.
    pub client: String,
    /// The call's number within the client.
    pub number: u64,
    /// Calls of other groups use other keys.
    pub group: String,
    /// The call.
    pub call: Call,
    /// The time before the call.
    pub begin: u64,
    /// The time after the call.
    pub end: u64,
    /// The answer that the caller got.
    pub outcome: Outcome,
}

impl CallRecord {
    /// The record as a line.
    #[must_use]
    pub fn json(&self) -> Value {
        let name = NAMES.iter().find(|(_, operation)| *operation == self.call.operation).map_or("", |(name, _)| name);
        let outcome = match &self.outcome {
            Outcome::Decided { at, values } => json!({"at": at, "decision": values.json()}),
            Outcome::Done => json!("done"),
            Outcome::Local => json!("local"),
            Outcome::Failed(code) => json!({"error": code}),
        };
        json!({
            "client": self.client, "number": self.number, "group": self.group, "operation": name,
            "entries": self.call.entries, "length": self.call.length, "begin": self.begin, "end": self.end,
            "outcome": outcome,
        })
    }

    /// Reads a line.
    #[must_use]
    pub fn from_json(line: &Value) -> Option<Self> {
        let entry =
            |entry: &Value| Some((entry[0].as_str()?.to_owned(), entry[1].as_str()?.to_owned(), entry[2].as_u64()?));
        let outcome = &line["outcome"];
        let name = line["operation"].as_str()?;
        Some(Self {
            client: line["client"].as_str()?.to_owned(),
            number: line["number"].as_u64()?,
            group: line["group"].as_str()?.to_owned(),
            call: Call {
                operation: NAMES.iter().find(|(known, _)| *known == name)?.1,
                entries: line["entries"].as_array()?.iter().map(entry).collect::<Option<_>>()?,
                length: line["length"].as_u64()?,
            },
            begin: line["begin"].as_u64()?,
            end: line["end"].as_u64()?,
            outcome: match (outcome.as_str(), outcome["error"].as_str()) {
                (Some("done"), _) => Outcome::Done,
                (Some("local"), _) => Outcome::Local,
                (_, Some(code)) => Outcome::Failed(code.to_owned()),
                _ => Outcome::Decided {
                    at: outcome["at"].as_u64(),
                    values: Box::new(DecisionValues::from_json(&outcome["decision"])?),
                },
            },
        })
    }
}

/// The data that a fault may take from the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loss {
    /// Nothing.
    Nothing,
    /// Everything, certainly.
    Everything,
    /// Everything on some of the servers: for one key everything or nothing.
    EverythingOfSome,
    /// The newest charges, which no copy had yet: the store goes back to its state at some earlier moment.
    Newest,
}

/// A fault, with the times before and after it.
#[derive(Debug, Clone, Copy)]
pub struct FaultRecord {
    /// Its name, in one word.
    pub name: &'static str,
    /// Before it.
    pub begin: u64,
    /// When it was over.
    pub end: u64,
    /// The data that may be lost.
    pub loss: Loss,
}
