//! A test kit for stores of applications. Each check names the defect that it finds.

use std::collections::HashSet;
use std::fmt::Debug;
use std::future::Future;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::MAX_ENTRIES;
use super::key_value_store::{
    KeyChange as Change, KeyValueStore, StandingValue as Value, StoreAnswer, StoreFailure, Swapped,
};
use crate::error::{Error, Result};

/// A method of the store may take this long.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The most bytes of a key.
const MAX_KEY: usize = 64;
/// The rounds in which two clients write at once.
const ROUNDS: usize = 25;
/// The kit writes values with this lifetime, except to test a short one.
const LIFETIME: Duration = Duration::from_secs(3_600);

/// Tests if a store keeps what Tidegate needs. It writes a few hundred keys that begin with `verify` and deletes them. It takes about
/// two seconds.
///
/// # Errors
/// `config_invalid` with a sentence that names the defect.
pub async fn verify<K: KeyValueStore>(store: &K) -> Result<()> {
    let random = std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), 0);
    // A scan must not take these bytes for wildcards. None of them is a zero, which a test of its own has.
    let kit = Kit { store, prefix: format!("verify%_*[{random:016x}").into_bytes() };
    let clocks = kit.one_value().await?;
    kit.versions().await?;
    kit.several_keys().await?;
    kit.bytes().await?;
    kit.large_value().await?;
    kit.two_clients().await?;
    kit.all_or_none().await?;
    kit.scan().await?;
    kit.time(clocks).await
}

struct Kit<'a, K> {
    store: &'a K,
    prefix: Vec<u8>,
}

/// The clock of the store, and that of this process.
type Clocks = (Option<SystemTime>, SystemTime);

impl<K: KeyValueStore> Kit<'_, K> {
    fn key(&self, name: impl AsRef<[u8]>) -> Vec<u8> {
        [&self.prefix, name.as_ref()].concat()
    }

    fn fail<T>(&self, defect: impl AsRef<str>) -> Result<T> {
        Err(Error::config(format!("{}: {}", self.store.name(), defect.as_ref())))
    }

    fn expect(&self, holds: bool, defect: impl AsRef<str>) -> Result<()> {
        if holds { Ok(()) } else { self.fail(defect) }
    }

    async fn answer<T>(
        &self,
        method: &str,
        asked: usize,
        answer: impl Future<Output = StoreAnswer<T>>,
    ) -> Result<(Option<SystemTime>, Vec<T>)> {
        let Ok(answer) = tokio::time::timeout(TIMEOUT, answer).await else {
            return self.fail(format!("{method} did not answer within {} s", TIMEOUT.as_secs()));
        };
        match answer {
            Ok((now, answers)) if answers.len() == asked => Ok((now, answers)),
            Ok((_, answers)) => self.fail(format!(
                "{method} returned {} answers to {asked} questions: it must return one for each, in their order",
                answers.len()
            )),
            Err(StoreFailure::WrongAnswer(wrong)) => self.fail(format!("{method} returned {wrong}")),
            Err(StoreFailure::NotApplied(cause) | StoreFailure::Failed(cause)) => self
                .fail(format!("{method} failed for {asked} keys: {cause}"))
                .map_err(|error: Error| error.caused_by(cause)),
        }
    }

    async fn read<const N: usize>(&self, keys: [&[u8]; N]) -> Result<[Option<Value>; N]> {
        let (_, values) = self.answer("read", N, self.store.read(&keys, TIMEOUT)).await?;
        values.try_into().or_else(|_| self.fail("read returned too few values"))
    }

    async fn swap(&self, changes: &[Change]) -> Result<Vec<Swapped>> {
        let mut tries = 0..10;
        loop {
            // A swap that did not happen is tried again, as a limiter does.
            let swapped = self.store.compare_and_swap(changes, TIMEOUT).await;
            if matches!(swapped, Err(StoreFailure::NotApplied(_))) && tries.next().is_some() {
                tokio::time::sleep(Duration::from_millis(5)).await;
                continue;
            }
            let swapped = std::future::ready(swapped);
            return Ok(self.answer("compare_and_swap", changes.len(), swapped).await?.1);
        }
    }

    async fn swap_one(&self, key: &[u8], version: Option<&[u8]>, data: Option<&[u8]>) -> Result<Swapped> {
        let mut swapped = self.swap(&[change(key, version, data)]).await?;
        Ok(swapped.remove(0))
    }

    /// Writes a value over that version. Returns its version.
    async fn write(&self, key: &[u8], version: Option<&[u8]>, data: &[u8]) -> Result<Vec<u8>> {
        let swapped = self.swap_one(key, version, Some(data)).await?;
        let expected = if version.is_some() { "the version that it has" } else { "version None while it had no value" };
        self.expect(
            swapped == Swapped::Done,
            format!(
                "compare_and_swap did not write a key with {expected}: it returned {swapped:?} and must return done"
            ),
        )?;
        match self.read([key]).await? {
            [Some(value)] => {
                self.expect(value.data == data, "read did not return the bytes that were written")?;
                Ok(value.version)
            }
            [None] => self.fail("read found no value for a key that was just written"),
        }
    }

    async fn delete(&self, key: &[u8], version: &[u8]) -> Result<()> {
        let swapped = self.swap_one(key, Some(version), None).await?;
        self.expect(swapped == Swapped::Done, "compare_and_swap did not delete a key with the version that it has")?;
        self.expect(self.read([key]).await? == [None], "a key that was deleted still has a value")
    }

    /// A key is written, swapped and deleted.
    async fn one_value(&self) -> Result<Clocks> {
        let key = &self.key("one");
        let began = SystemTime::now();
        let (clock, values) = self.answer("read", 1, self.store.read(&[key], TIMEOUT)).await?;
        self.expect(values == [None], "read found a value for a key that was never written")?;
        if let Some(clock) = clock {
            let (seconds, own) = (seconds(clock), seconds(began));
            self.expect(
                (0.5..2.0).contains(&(seconds / own)),
                format!(
                    "the clock of the store has wrong units: it returned {seconds:.0}, while unix seconds are {own:.0}"
                ),
            )?;
        }
        let first = self.write(key, None, b"first").await?;
        let standing = || Swapped::Lost(Some(Value { version: first.clone(), data: b"first".to_vec() }));
        match self.swap_one(key, None, Some(b"second")).await? {
            Swapped::Done => {
                return self
                    .fail("compare_and_swap with version None replaced a value: it may only write a key without one");
            }
            lost => self.expect(
                lost == standing(),
                "compare_and_swap lost and did not return the value that stands there, with its version",
            )?,
        }
        let second = self.write(key, Some(&first), b"second").await?;
        self.expect(second != first, "a version stayed the same after a swap: each write needs a new one")?;
        self.expect(
            self.swap_one(key, Some(&first), Some(b"third")).await? != Swapped::Done,
            "compare_and_swap replaced a value that had another version: swaps are lost",
        )?;
        self.expect(
            self.swap_one(key, Some(&first), None).await? != Swapped::Done,
            "compare_and_swap deleted a value that had another version: swaps are lost",
        )?;
        self.delete(key, &second).await?;
        self.expect(
            self.swap_one(key, Some(&second), None).await? == Swapped::Lost(None),
            "compare_and_swap must return none for the deletion of a key that has no value",
        )?;
        self.expect(
            self.swap_one(key, Some(&second), Some(b"x")).await? == Swapped::Lost(None),
            "compare_and_swap wrote a key that has no value, although the change has a version",
        )?;
        Ok((clock, began))
    }

    async fn versions(&self) -> Result<()> {
        let (key, mut seen) = (&self.key("versions"), HashSet::new());
        let again = "a version came again after the value was deleted or written anew: a slow process would replace a value that it has never read";
        for _ in 0..3 {
            let first = self.write(key, None, b"same").await?;
            let second = self.write(key, Some(&first), b"same").await?;
            self.expect(seen.insert(first) && seen.insert(second.clone()), again)?;
            self.delete(key, &second).await?;
        }
        Ok(())
    }

    async fn several_keys(&self) -> Result<()> {
        let keys: Vec<Vec<u8>> =
            (0..MAX_ENTRIES).map(|number| self.key(format!("several {}", (number * 37) % MAX_ENTRIES))).collect();
        let data = |number: usize| number.to_string().into_bytes();
        let writes: Vec<Change> =
            keys.iter().enumerate().map(|(number, key)| change(key, None, Some(&data(number)))).collect();
        let written = self.swap(&writes).await?;
        self.expect(
            written.iter().all(|one| *one == Swapped::Done),
            "compare_and_swap did not write all keys of a call",
        )?;
        let backwards: Vec<&[u8]> = keys.iter().rev().map(|key| &key[..]).collect();
        let (_, values) = self.answer("read", keys.len(), self.store.read(&backwards, TIMEOUT)).await?;
        let is_own =
            |(number, value): (usize, &Option<Value>)| value.as_ref().is_some_and(|value| value.data == data(number));
        self.expect(
            values.iter().rev().enumerate().all(is_own),
            "read returned the values of several keys in another order than the keys",
        )?;
        let missing = self.key("several none");
        let [first, none, last] = self.read([&keys[0], &missing, &keys[1]]).await?;
        self.expect(
            first.is_some() && none.is_none() && last.is_some(),
            "read must return none in the place of a key without a value",
        )?;
        let standing = |value: Option<Value>| value.map_or(Swapped::Lost(None), |value| Swapped::Lost(Some(value)));
        let version = first.as_ref().map(|value| value.version.clone()).unwrap_or_default();
        let other = change(&keys[0], Some(&version), Some(b"y"));
        let swapped = self.swap(&[change(&keys[1], None, Some(b"x")), other]).await?;
        // A store that makes all changes or none makes neither.
        let is_right = swapped[0] == standing(last) && (swapped[1] == Swapped::Done || swapped[1] == standing(first));
        self.expect(
            is_right,
            "compare_and_swap returned the results of several changes in another order than the changes",
        )?;
        let keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
        let (_, values) = self.answer("read", keys.len(), self.store.read(&keys, TIMEOUT)).await?;
        let found =
            keys.iter().zip(&values).filter_map(|(key, value)| Some(change(key, Some(&value.as_ref()?.version), None)));
        let deleted = self.swap(&found.collect::<Vec<_>>()).await?;
        self.expect(
            deleted.iter().all(|one| *one == Swapped::Done),
            "compare_and_swap did not delete all keys of a call",
        )
    }

    /// Any bytes may be in keys and in data.
    async fn bytes(&self) -> Result<()> {
        let all: Vec<u8> = (0..=u8::MAX).collect();
        for part in all.chunks(MAX_KEY - self.prefix.len()) {
            let key = self.key(part);
            let version = self.write(&key, None, &all).await?;
            self.delete(&key, &version).await?;
        }
        for (one, other) in [("a", "A"), ("a", "a\0"), ("a", "a "), ("\u{e9}", "e\u{301}")] {
            let (key, other) = (self.key(one), self.key(other));
            let version = self.write(&key, None, b"one").await?;
            self.expect(
                self.read([&other]).await? == [None],
                "two keys that differ in one byte have the same value: keys are bytes, without a collation",
            )?;
            self.delete(&key, &version).await?;
        }
        Ok(())
    }

    async fn large_value(&self) -> Result<()> {
        let (key, largest) = (self.key("large"), self.store.max_value());
        let data: Vec<u8> = (0..largest).map(|index| (index % 251) as u8).collect();
        match self.write(&key, None, &data).await {
            Ok(version) => self.delete(&key, &version).await,
            Err(error) => self.fail(format!(
                "a value of {largest} bytes, which max_value allows, does not come back as it was written: {}",
                error.message()
            )),
        }
    }

    /// Two clients write one key at the same moment.
    async fn two_clients(&self) -> Result<()> {
        let key = &self.key("clients");
        let lost =
            "swaps are lost when two clients write one key at once: comparing and swapping must be one atomic step";
        for round in 0..ROUNDS {
            let [standing] = self.read([key]).await?;
            let version = standing.as_ref().map(|value| &value.version[..]);
            let (mine, yours) = (format!("mine {round}"), format!("yours {round}"));
            let (one, other) = futures(
                self.swap_one(key, version, Some(mine.as_bytes())),
                self.swap_one(key, version, Some(yours.as_bytes())),
            )
            .await;
            let (one, other) = (one?, other?);
            self.expect(
                one == Swapped::Done || other == Swapped::Done,
                "two clients wrote one key at once, and neither won",
            )?;
            self.expect((one == Swapped::Done) != (other == Swapped::Done), lost)?;
            let winner = if one == Swapped::Done { mine } else { yours };
            let [standing] = self.read([key]).await?;
            let Some(standing) = standing.filter(|value| value.data == winner.as_bytes()) else {
                return self.fail(lost);
            };
            if round % 2 == 0 {
                self.delete(key, &standing.version).await?;
            }
        }
        if let [Some(value)] = self.read([key]).await? {
            self.delete(key, &value.version).await?;
        }
        Ok(())
    }

    async fn all_or_none(&self) -> Result<()> {
        if !self.store.all_or_none() {
            return Ok(());
        }
        let (held, free) = (self.key("held"), self.key("free"));
        let version = self.write(&held, None, b"held").await?;
        for changes in [
            [change(&free, None, Some(b"x")), change(&held, None, Some(b"x"))],
            [change(&held, None, Some(b"x")), change(&free, None, Some(b"x"))],
        ] {
            let swapped = self.swap(&changes).await?;
            let standing = self.read([&held, &free]).await?;
            self.expect(
                !swapped.contains(&Swapped::Done)
                    && matches!(&standing, [Some(value), None] if value.version == version),
                "all_or_none is promised, and a call of which one change was lost made the other one",
            )?;
        }
        self.delete(&held, &version).await
    }

    async fn scan(&self) -> Result<()> {
        if !self.store.scans() {
            return Ok(());
        }
        // Wildcards of LIKE and of globs would find the last one too.
        let [one, two, gone, other] = ["s 1", "s\u{0}2", "s 3", ""].map(|name| self.key(name));
        let other = [b"verifyxxx[", &other[10..], b"s 4"].concat();
        let mut versions = Vec::new();
        for key in [&one, &two, &gone, &other] {
            versions.push(self.write(key, None, b"x").await?);
        }
        self.delete(&gone, &versions[2]).await?;
        let prefix = self.key("s");
        let scanned = async { Ok::<_, StoreFailure>((None, vec![self.store.scan(&prefix, TIMEOUT).await?])) };
        let found = self.answer("scan", 1, scanned).await?.1.remove(0);
        self.expect(!found.contains(&gone), "scan returned a key that was deleted")?;
        self.expect(!found.contains(&other), "scan returned a key that does not begin with the prefix")?;
        for (key, version) in [(&one, &versions[0]), (&two, &versions[1]), (&other, &versions[3])] {
            self.expect(found.contains(key) || *key == other, "scan left out a key that begins with the prefix")?;
            self.delete(key, version).await?;
        }
        Ok(())
    }

    /// A value lives until it expires, and the clock of the store moves.
    async fn time(&self, (first, began): Clocks) -> Result<()> {
        let key = &self.key("expires");
        // A store that cuts the fraction of a second drops the value here.
        let now = first.unwrap_or(began) + SystemTime::now().duration_since(began).unwrap_or_default();
        let second = seconds(now).floor();
        let expires_at = UNIX_EPOCH + Duration::from_secs_f64(second + 1.95);
        let swapped = self.swap(&[Change { expires_at, ..change(key, None, Some(b"short")) }]).await?;
        self.expect(swapped == [Swapped::Done], "compare_and_swap did not write a value that expires soon")?;
        let wait = Duration::from_secs_f64(second + 1.4 - seconds(now));
        tokio::time::sleep(wait).await;
        let (last, values) = self.answer("read", 1, self.store.read(&[key], TIMEOUT)).await?;
        let took = SystemTime::now().duration_since(began).unwrap_or_default();
        let late = first.unwrap_or(began) + took > expires_at;
        match &values[0] {
            Some(value) => {
                self.delete(key, &value.version).await.or_else(|error| if late { Ok(()) } else { Err(error) })?
            }
            None => self
                .expect(late, "the store dropped a value before its expires_at, which is unix time with a fraction")?,
        }
        let Some((first, last)) = first.zip(last) else { return Ok(()) };
        let moved = last.duration_since(first).unwrap_or_default();
        let is_near = moved.as_secs_f64() / took.as_secs_f64();
        self.expect(
            (0.3..3.0).contains(&is_near),
            format!("the clock of the store moved {moved:.1?} while {took:.1?} passed: it must return the current unix time at each call"),
        )
    }
}

fn change(key: &[u8], version: Option<&[u8]>, data: Option<&[u8]>) -> Change {
    Change {
        key: key.to_vec(),
        version: version.map(<[u8]>::to_vec),
        data: data.map(<[u8]>::to_vec),
        expires_at: SystemTime::now() + LIFETIME,
    }
}

fn seconds(time: SystemTime) -> f64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

/// Both outcomes of two futures that run at once.
async fn futures<T: Debug>(one: impl Future<Output = T>, other: impl Future<Output = T>) -> (T, T) {
    let (mut one, mut other) = (std::pin::pin!(one), std::pin::pin!(other));
    let (mut first, mut second) = (None, None);
    std::future::poll_fn(|context| {
        use std::task::Poll;
        if first.is_none()
            && let Poll::Ready(outcome) = one.as_mut().poll(context)
        {
            first = Some(outcome);
        }
        if second.is_none()
            && let Poll::Ready(outcome) = other.as_mut().poll(context)
        {
            second = Some(outcome);
        }
        match (first.take(), second.take()) {
            (Some(first), Some(second)) => Poll::Ready((first, second)),
            waiting => {
                (first, second) = waiting;
                Poll::Pending
            }
        }
    })
    .await
}
