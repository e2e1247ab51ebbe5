//! The options of the web layers of Python and Node. The layer for tower has a method for each option that it takes.

use crate::policy::declaration::{OptionDeclaration, declared_options};

/// The options that choose the limits of a layer.
pub const LAYER_OPTIONS: &[OptionDeclaration] = declared_options! {
    /// The limiter that decides. In Python a layer without one makes one, with the options of a limiter.
    limiter: Limiter = Required;

    /// The policy of requests: a name, a notation or a Policy, several of them, or a function of the request, which may return nothing
    /// for no limit. A name is one limit wherever it is used; a notation counts for the place where it is written.
    policy: PolicyChoice = Required;

    /// A limit of the whole application, asked together with `policy` in one round trip.
    application: PolicyList;

    /// In place of `policy`: a notation here is a budget of each route that has no limit of its own.
    default: PolicyChoice;
};

/// The options of one limit. Given to a layer, they are the defaults of its limits, except `skip` and `enabled`.
pub const LIMIT_OPTIONS: &[OptionDeclaration] = declared_options! {
    /// The key of a request: a function of the request, or what a helper such as that of the client's address returns.
    key: RequestKey = Words("the client's address");

    /// The units that a request consumes: a number, numbers by the names of units, or a function of the request. Of numbers by names
    /// each policy takes those that it counts. In Python a function's 0 charges nothing.
    cost: RequestCost = Count(1);

    /// A function of the request; true exempts the request. That of a layer applies to each of its limits as well.
    skip: RequestFunction;

    /// Called when a request is refused, and may answer it. In Python it gets the request and the Decision, and returns the response, or
    /// None for the default one. In Node it may answer itself; a value that it returns is sent as the body instead of the problem. In Node
    /// `'throw'` gives the refusal to the framework's error handling, as an error with `status` and `decision`. An answer without a status
    /// of its own has that of the refusal.
    on_denied: Refusal;

    /// Which fields announce the limits: `both`, `ietf` (the newest revision of the draft), `ietf-10`, `ietf-11`, `legacy` or `off`.
    headers: Headers = Text("both");

    /// Called when the response has ended, with the request and the response. True gives back what the request consumed. In Node a
    /// function of one argument gets the response, so the first argument has the type of both.
    refund_when: ResponseFunction;

    /// Called when the response has ended, with the request and the response: the units that the request should have consumed; nothing
    /// is as many as it did. Of numbers by the names of units each policy takes those that it counts, and others stay. Of several
    /// policies one number is for those that name a cost, or for all where none does; a list has a number
    /// for each, a map one for each policy that it names. In Node a function of one argument gets the response.
    settle: ActualCost;

    /// How long units of a `concurrency` limit are held: to the end of the `response`, or to that of the `handler`, which may run longer.
    /// In Node `settle` and `refund_when` are called at the same moment.
    hold_until: Choice(&["response", "handler"]) = Text("response");

    /// What the journal remembers of a request: a text, bytes, or a function of the request.
    meta: RequestMeta;

    /// The class of a request, one of those that a policy declares with its option `priorities`: a name, or a function of the request,
    /// which may return nothing for none. Of several policies it is for those that have classes.
    priority: RequestPriority;

    /// The HTTP methods that are limited. HEAD counts as GET.
    methods: Methods = Words("all of them");

    /// Whether each HTTP method has a budget of its own. HEAD shares that of GET.
    per_method: Flag = Flag(false);

    /// False: nothing is limited, as if the limit were not written.
    enabled: OptionalFlag = Words("the environment variable `TIDEGATE_ENABLED`, else true");
};
