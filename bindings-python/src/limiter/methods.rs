//! The calls of both limiters, declared once. `classes.rs` uses this for each limiter, and has the imports.

/// The methods of a limiter. The arguments are the types that its calls return, in Rust and in the stubs, the sentences
/// that only this limiter needs, and its extra methods.
macro_rules! limiter_methods {
    (
        $Class:ident = $class:tt {
            $Decision:ty = $decision:tt, $Nothing:ty = $nothing:tt, $Attempts:ty = $attempts:tt,
            $Overrides:ty = $overrides:tt, $Hold:ty = $hold:tt, $Admission:ty = $admission:tt, $Refusal:ty = $refusal:tt
        }
        acquire: $(#[$($doc_acquire:tt)*])*
        hold: $(#[$($doc_hold:tt)*])*
        limit: $(#[$($doc_limit:tt)*])*
        without_store: $(#[$($doc_without_store:tt)*])*
        own { $($own:tt)* }
    ) => {
        #[pymethods]
        impl $Class {
            #[new]
            #[pyo3(signature = (
                store: "str | Iterable[str] | Rollout | KeyValueStore | AsyncKeyValueStore | None" = None, **options: "Unpack[LimiterOptions]"
            ))]
            fn new(store: Option<Bound<'_, PyAny>>, options: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
                let function = concat!(stringify!($Class), ".__new__()");
                Self::build(LimiterOptions { function, store: store.as_ref(), options }.with_policies()?)
            }

            /// The limiter that a policy file describes: YAML, TOML or JSON. `store` and `prefix` replace those of the file.
            ///
            /// Its policies are those of the file and of `policies`. The other options are those of the class.
            #[classmethod]
            #[pyo3(signature = (
                path: "str | PathLike[str]", store: "str | Iterable[str] | Rollout | KeyValueStore | AsyncKeyValueStore | None" = None,
                **options: "Unpack[LimiterOptions]"
            ) -> $class)]
            fn from_file(
                _class: &Bound<'_, PyType>,
                #[pyo3(from_py_with = path)] path: PathBuf,
                store: Option<Bound<'_, PyAny>>,
                options: Option<&Bound<'_, PyDict>>,
            ) -> PyResult<Self> {
                let function = concat!(stringify!($Class), ".from_file()");
                Self::build(LimiterOptions { function, store: store.as_ref(), options }.with_file(&path)?)
            }

            /// Checks and consumes `cost` units, in one atomic step. The policy is a name, a notation or a
            /// Policy.
            ///
            /// The journal remembers `meta` (str or bytes). A denial is a Decision, never an error. With `partial` it takes as
            /// many units as are left, up to `cost`: see `granted`. With `priority`, a class of the policy's `priorities`, a part
            /// of each limit stays free.
            #[pyo3(signature = (
                policy: "str | Policy", key: "str", cost: "int | Mapping[str, int]" = Cost::from(1), meta: "str | bytes | None" = None,
                partial: "bool" = false, priority: "str | None" = None
            ) -> $decision, text_signature = "($self, policy, key, cost=1, meta=None, partial=False, priority=None)")]
            fn check(
                &self,
                policy: &Bound<'_, PyAny>,
                key: Key<'_>,
                #[pyo3(from_py_with = cost)] cost: Cost,
                #[pyo3(from_py_with = meta)] meta: Option<Vec<u8>>,
                partial: bool,
                #[pyo3(from_py_with = priority)] priority: Option<String>,
            ) -> PyResult<$Decision> {
                self.decide(policy, key, Call::check(CheckOptions { meta, partial, priority, ..cost.into() }))
            }

            /// Returns the Decision that a check would return, and consumes nothing.
            #[pyo3(signature = (
                policy: "str | Policy", key: "str", cost: "int | Mapping[str, int]" = Cost::from(1), priority: "str | None" = None
            ) -> $decision, text_signature = "($self, policy, key, cost=1, priority=None)")]
            fn peek(
                &self,
                policy: &Bound<'_, PyAny>,
                key: Key<'_>,
                #[pyo3(from_py_with = cost)] cost: Cost,
                #[pyo3(from_py_with = priority)] priority: Option<String>,
            ) -> PyResult<$Decision> {
                self.decide(policy, key, Call::peek(CheckOptions { priority, ..cost.into() }))
            }

            /// Consumes even beyond the limit: windows count it, buckets go into debt, `remaining` is 0.
            #[pyo3(signature = (policy: "str | Policy", key: "str", cost: "int | Mapping[str, int]") -> $decision)]
            fn charge(
                &self,
                policy: &Bound<'_, PyAny>,
                key: Key<'_>,
                #[pyo3(from_py_with = cost)] cost: Cost,
            ) -> PyResult<$Decision> {
                self.decide(policy, key, Call::Charge(cost))
            }

            /// Gives units back, at most what is used.
            #[pyo3(signature = (policy: "str | Policy", key: "str", cost: "int | Mapping[str, int]" = Cost::from(1)) -> $nothing, text_signature = "($self, policy, key, cost=1)")]
            fn refund(
                &self,
                policy: &Bound<'_, PyAny>,
                key: Key<'_>,
                #[pyo3(from_py_with = cost)] cost: Cost,
            ) -> PyResult<$Nothing> {
                self.carry_out(policy, key, Call::Refund(cost))
            }

            /// Learns the limits that the response to a call reports, as an Observation or several. They count for every process
            /// that uses the key, and never admit a call earlier. `decision` is the Decision of the call. The units that were charged
            /// since then are added to the usage in the response.
            #[pyo3(signature = (
                policy: "str | Policy", key: "str", observation: "Observation | Iterable[Observation]", *, decision: "Decision | None" = None
            ) -> $decision)]
            fn observe(
                &self,
                policy: &Bound<'_, PyAny>,
                key: Key<'_>,
                #[pyo3(from_py_with = observations)] observation: Vec<tidegate::http::Observation>,
                decision: Option<&Bound<'_, Decision>>,
            ) -> PyResult<$Decision> {
                let answered = decision.map(|decision| &decision.get().inner);
                self.decide(policy, key, Call::observe(observation, answered))
            }

            /// Call it once after the work. It charges or refunds the difference between the units of a check and the actual cost.
            /// For the Decision of a peek, which has consumed nothing, it charges the actual cost.
            ///
            /// After `check_all`, one number is for the entries with a cost other than 1, or for all. A list has one for each entry, a dict
            /// for the policies that it names. None leaves an entry as it is. For a policy with units, give a dict of them. Units that it
            /// does not name stay as they are.
            #[pyo3(signature = (
                decision: "Decision",
                actual_cost: "int | Sequence[int | Mapping[str, int] | None] | Mapping[str, int | Mapping[str, int] | None]"
            ) -> $nothing)]
            fn settle(
                &self,
                py: Python<'_>,
                decision: &Bound<'_, Decision>,
                actual_cost: &Bound<'_, PyAny>,
            ) -> PyResult<$Nothing> {
                self.settle_with(py, &decision.get().inner, actual_costs(actual_cost)?)
            }

            /// Checks several policies and keys, each (policy, key), (policy, key, cost), (policy, key, cost, meta) or
            /// (policy, key, cost, meta, priority), and charges all or none.
            ///
            /// The Decision has the fields of the first denial, if there is one, and in `decisions` a Decision for each entry.
            /// It refuses `partial`, because it charges all or nothing.
            #[pyo3(signature = (
                entries: "Iterable[tuple[str | Policy | int | Mapping[str, int] | bytes | None, ...]]", *, partial: "bool" = false
            ) -> $decision)]
            fn check_all(&self, py: Python<'_>, entries: &Bound<'_, PyAny>, partial: bool) -> PyResult<$Decision> {
                refuse_partial(partial)?;
                self.decide_all(py, self::entries(entries)?)
            }

            /// Asks the policies of a request, each (prepared, key, cost, meta, priority, method). The units of a concurrency limit are
            /// held. With `records_steps` the answer has the steps in which the store was asked.
            #[pyo3(name = "_admit", signature = (
                asked: "list[tuple[PreparedPolicy, str, int | Mapping[str, int], str | bytes | None, str | None, str | None]]",
                records_steps: "bool" = false
            ) -> $admission)]
            fn admit(&self, asked: &Bound<'_, PyList>, records_steps: bool) -> PyResult<$Admission> {
                self.admit_request(asked.py(), AskedPolicy::list(asked)?, records_steps)
            }

            /// Waits until the call is admitted, at most `timeout` seconds. The Decision is a denial if that would be too late.
            ///
            /// Calls that wait for the same key are admitted in their order.
            $(#[$($doc_acquire)*])*
            #[pyo3(signature = (
                policy: "str | Policy", key: "str", cost: "int | Mapping[str, int]" = Cost::from(1), timeout: "float | timedelta | None" = None,
                meta: "str | bytes | None" = None, priority: "str | None" = None
            ) -> $decision, text_signature = "($self, policy, key, cost=1, timeout=None, meta=None, priority=None)")]
            fn acquire(
                &self,
                policy: &Bound<'_, PyAny>,
                key: Key<'_>,
                #[pyo3(from_py_with = cost)] cost: Cost,
                #[pyo3(from_py_with = optional_seconds)] timeout: Option<Duration>,
                #[pyo3(from_py_with = meta)] meta: Option<Vec<u8>>,
                #[pyo3(from_py_with = priority)] priority: Option<String>,
            ) -> PyResult<$Decision> {
                let options = CheckOptions { meta, priority, ..cost.into() };
                self.acquire_within(policy, key, options, timeout)
            }

            $(#[$($doc_hold)*])*
            #[pyo3(signature = (
                policy: "str | Policy", key: "str", cost: "int | Mapping[str, int]" = Cost::from(1),
                timeout: "float | timedelta | None" = Some(Duration::ZERO), priority: "str | None" = None,
                meta: "str | bytes | None" = None
            ) -> $hold, text_signature = "($self, policy, key, cost=1, timeout=0.0, priority=None, meta=None)")]
            fn hold(
                &self,
                policy: &Bound<'_, PyAny>,
                key: Key<'_>,
                #[pyo3(from_py_with = cost)] cost: Cost,
                #[pyo3(from_py_with = optional_seconds)] timeout: Option<Duration>,
                #[pyo3(from_py_with = priority)] priority: Option<String>,
                #[pyo3(from_py_with = meta)] meta: Option<Vec<u8>>,
            ) -> PyResult<$Hold> {
                let options = CheckOptions { meta, priority, ..cost.into() };
                self.take_hold(policy, key, options, timeout)
            }

            /// Denies the key for this number of seconds (or "10m"), whatever its usage is.
            #[pyo3(signature = (policy: "str | Policy", key: "str", seconds: "float | str | timedelta") -> $nothing)]
            fn block(
                &self,
                policy: &Bound<'_, PyAny>,
                key: Key<'_>,
                #[pyo3(from_py_with = length)] seconds: Duration,
            ) -> PyResult<$Nothing> {
                self.carry_out(policy, key, Call::Block(seconds))
            }

            /// Ends a block.
            #[pyo3(signature = (policy: "str | Policy", key: "str") -> $nothing)]
            fn unblock(&self, policy: &Bound<'_, PyAny>, key: Key<'_>) -> PyResult<$Nothing> {
                self.carry_out(policy, key, Call::Unblock)
            }

            /// Forgets the usage of a key and ends its block. Its journal stays.
            #[pyo3(signature = (policy: "str | Policy", key: "str") -> $nothing)]
            fn clear(&self, policy: &Bound<'_, PyAny>, key: Key<'_>) -> PyResult<$Nothing> {
                self.carry_out(policy, key, Call::Clear)
            }

            /// Gives a key other limits than its policy: a notation, a Limit, a list of both, or a Policy, of which only the limits count.
            /// "none" is no limit, and None ends the override, as `ttl` seconds do. Other processes
            /// use it within a second. Used units stay used for each limit of the same algorithm, period and unit.
            #[pyo3(name = "override", signature = (
                policy: "str | Policy", key: "str", limits: "str | Limit | Policy | Iterable[str | Limit] | None",
                ttl: "float | timedelta | None" = None
            ) -> $nothing)]
            fn set_override(
                &self,
                policy: &Bound<'_, PyAny>,
                key: Key<'_>,
                limits: Option<Bound<'_, PyAny>>,
                ttl: Option<Bound<'_, PyAny>>,
            ) -> PyResult<$Nothing> {
                let own = limits.map(|limits| key_override(&limits)).transpose()?;
                let ttl = ttl.map(|ttl| {
                    named_seconds("ttl", timedelta_seconds(&ttl).map_or_else(|| number("ttl", &ttl), Ok)?)
                });
                self.change_override(policy, key, own, ttl.transpose()?)
            }

            /// The keys of a policy with other limits from `override`, in the order of the keys.
            #[pyo3(signature = (policy: "str | Policy") -> $overrides)]
            fn overrides(&self, policy: &Bound<'_, PyAny>) -> PyResult<$Overrides> {
                self.read_overrides(policy)
            }

            /// The newest attempts, newest first. The policy needs a `journal`.
            #[pyo3(signature = (policy: "str | Policy", key: "str") -> $attempts)]
            fn journal(&self, policy: &Bound<'_, PyAny>, key: Key<'_>) -> PyResult<$Attempts> {
                self.read_journal(policy, key)
            }

            /// The number of calls of `acquire` and `hold` that wait for a key in this limiter.
            $(#[$($doc_without_store)*])*
            #[pyo3(signature = (policy: "str | Policy", key: "str") -> "int")]
            fn waiting(&self, policy: &Bound<'_, PyAny>, key: Key<'_>) -> PyResult<usize> {
                let policy = PolicyArgument::of(policy)?;
                self.core().try_waiting(policy, utf8(&key.0)?).map_err(|error| raise_about(error, policy.text()))
            }

            /// Forgets all usage, blocks and journals under the prefix, for all policies and keys.
            #[pyo3(signature = () -> $nothing)]
            fn clear_all(&self, py: Python<'_>) -> PyResult<$Nothing> {
                self.forget_all(py)
            }

            /// Returns when the store answers. Raises StoreError with the reason when it does not.
            #[pyo3(signature = () -> $nothing)]
            fn ping(&self, py: Python<'_>) -> PyResult<$Nothing> {
                self.ask_store(py)
            }

            /// Reads the policy file again. It takes the whole file, or raises and changes nothing.
            #[pyo3(signature = () -> $nothing)]
            fn reload(&self, py: Python<'_>) -> PyResult<$Nothing> {
                self.read_file_again(py)
            }

            /// Closes the limiter. Calls that wait, and all later calls, raise ClosedError. Turns, holds and leased units go back.
            #[pyo3(signature = () -> $nothing)]
            fn close(&self, py: Python<'_>) -> PyResult<$Nothing> {
                self.end(py)
            }

            /// Changes the share of the keys that use the new store of a `rollout`, in percent, at once.
            $(#[$($doc_without_store)*])*
            #[pyo3(signature = (percent: "float") -> "None")]
            fn set_rollout(&self, #[pyo3(from_py_with = percent)] percent: f64) -> PyResult<()> {
                self.core().set_rollout(percent).map_err(raise)
            }

            /// The `counters` of `stats()` alone: events of stores, leases, fallbacks and holds.
            $(#[$($doc_without_store)*])*
            #[pyo3(signature = () -> "dict[str, int]")]
            fn counters<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
                counters(py, &self.core().counters())
            }

            /// The counts since the limiter was made or its process was forked, without any key: `policies` by name, calls to
            /// the `store`, its `breaker`, and `counters`. It is ready for JSON, and docs/metrics.md explains each number.
            $(#[$($doc_without_store)*])*
            #[pyo3(signature = () -> "dict[str, Any]")]
            fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
                stats(py, &self.core().stats())
            }

            /// The values of one metric, or of all, as JSON.
            #[pyo3(signature = (name: "str | None" = None) -> "str")]
            fn _samples(&self, name: Option<&str>) -> String {
                tidegate::host::samples_json(&self.core().stats(), name)
            }

            /// The policy behind a name or a notation at this moment.
            $(#[$($doc_without_store)*])*
            #[pyo3(signature = (policy: "str | Policy") -> "Policy")]
            fn policy(&self, policy: &Bound<'_, PyAny>) -> PyResult<Policy> {
                let policy = PolicyArgument::of(policy)?;
                let known = self.core().policy(policy).map_err(|error| raise_about(error, policy.text()))?;
                Ok(Policy { inner: known })
            }

            /// Returns a decorator. Each call of the function is checked first, and raises RateLimited if it is denied.
            ///
            /// `key` is a function of the call's arguments, or a text. `cost` is a number (1), numbers by units, or a function of these.
            /// `priority` is the name of a class of calls, or a function that returns one or None.
            /// A policy with a "concurrency" limit is held while the function runs. With a leaky-bucket, the function runs after the delay.
            ///
            $(#[$($doc_limit)*])*
            #[pyo3(signature = (
                policy: "str | Policy", *, key: "str | Callable[..., str]",
                cost: "int | Mapping[str, int] | Callable[..., int | Mapping[str, int]] | None" = None,
                priority: "str | Callable[..., str | None] | None" = None
            ) -> "Decorator")]
            fn limit<'py>(
                slf: Bound<'py, Self>,
                policy: Bound<'py, PyAny>,
                key: Bound<'py, PyAny>,
                cost: Option<Bound<'py, PyAny>>,
                priority: Option<Bound<'py, PyAny>>,
            ) -> PyResult<Bound<'py, PyAny>> {
                // The decorator of both limiters is in Python.
                let limit = slf.py().import("tidegate._decorator")?.getattr("limit")?;
                limit.call1((slf, policy, key, cost, priority))
            }

            /// Registers a use of a policy by its name, as long as the PolicyUse exists. `reload` refuses to drop such a policy.
            #[pyo3(name = "_use_policy", signature = (policy: "str | Policy", by: "str") -> "PolicyUse")]
            fn use_policy(&self, policy: &Bound<'_, PyAny>, by: Bound<'_, PyString>) -> PyResult<PolicyUse> {
                PolicyUse::new(&self.blocking(), policy, &by)
            }

            /// Another number after each `reload`.
            #[getter(_generation)]
            fn generation(&self) -> u64 {
                self.core().policy_generation()
            }

            /// Waits until a call may go out. If the answer `waits`, the caller waits for as long as its Decision says, and asks again.
            /// With `announces` it also hears of the wait for its own policy, and asks again at once, without `announces`.
            #[pyo3(name = "_turn", signature = (
                call: "OutgoingCall", timeout: "float | None", announces: "bool" = false
            ) -> $admission)]
            fn turn(
                &self,
                call: &Bound<'_, OutgoingCall>,
                #[pyo3(from_py_with = optional_seconds)] timeout: Option<Duration>,
                announces: bool,
            ) -> PyResult<$Admission> {
                self.take_turn(call.py(), call.get().shared(), timeout, announces)
            }

            /// The refusal of the service since that Decision, or None.
            #[pyo3(name = "_refused_since", signature = (call: "OutgoingCall", decision: "Decision") -> $refusal)]
            fn refused_since(
                &self,
                call: &Bound<'_, OutgoingCall>,
                decision: &Bound<'_, Decision>,
            ) -> PyResult<$Refusal> {
                self.read_refusal(call.py(), call.get().shared(), decision.get().inner.at())
            }

            /// Learns the limits in the response to a call. The response stands even if they cannot be learned.
            #[pyo3(name = "_learn", signature = (
                call: "OutgoingCall", observations: "list[Observation]", decision: "Decision"
            ) -> $nothing)]
            fn learn(
                &self,
                call: &Bound<'_, OutgoingCall>,
                #[pyo3(from_py_with = observations)] observations: Vec<tidegate::http::Observation>,
                decision: &Bound<'_, Decision>,
            ) -> PyResult<$Nothing> {
                self.learn_from(call.py(), call.get().shared(), observations, Answered::of(&decision.get().inner))
            }

            /// True if usage lives in this process alone.
            #[getter(_is_local)]
            fn is_local(&self) -> bool {
                !self.blocking().waits()
            }

            #[pyo3(signature = () -> "NoReturn")]
            fn __reduce__(&self) -> PyResult<()> {
                Err(belongs_to_process(stringify!($Class), "make one in each process, or before a fork"))
            }

            fn __repr__(&self) -> String {
                format!(concat!("<", stringify!($Class), " {}>"), self.blocking().described())
            }

            $($own)*
        }
    };
}

pub(super) use limiter_methods;
