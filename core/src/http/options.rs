//! The options of the web layers of Python and Node. The layer for tower has a method for each option that it takes.

use crate::policy::declaration::{OptionDeclaration, declared_options};

/// The options that choose the limits of a layer.
pub const LAYER_OPTIONS: &[OptionDeclaration] = declared_options! {
    /// The limiter that decides. In Python, a layer without one makes a limiter from its other options.
    limiter: Limiter = Required;

    /// The policy of requests: a name, a notation, a Policy, a list of these, or a function of the request. It may return nothing,
    /// for no limit. A name is one limit in all places, and a notation counts for the place where it is written.
    policy: PolicyChoice = Required;

    /// A limit of the whole application. It is checked together with `policy` in one round trip.
    application: PolicyList;

    /// Use it instead of `policy` to give a separate budget to each route without a limit.
    default: PolicyChoice;
};

/// The options of one limit. Given to a layer, they are the defaults of its limits, except `skip` and `enabled`.
pub const LIMIT_OPTIONS: &[OptionDeclaration] = declared_options! {
    /// The key of a request: a function of the request, or a key helper, such as the one for the client's address.
    key: RequestKey = Words("the client's address");

    /// The units that a request consumes: a number, numbers by the names of units, or a function of the request. Each policy takes the
    /// units that it counts. A function of Python may return 0, which charges nothing.
    cost: RequestCost = Count(1);

    /// A function of the request that returns true for a request without a limit. The `skip` of a layer applies to all its limits.
    skip: RequestFunction;

    /// A function that may answer a refused request. In Python it gets the request and the Decision, and returns the response, or None for
    /// the default one. In Node it may answer the request, or return a value, which becomes the body instead of the problem. In Node,
    /// `'throw'` gives the refusal to the error handling of the framework, as an error with `status` and `decision`. An answer without a
    /// status gets the status of the refusal.
    on_denied: Refusal;

    /// The fields that announce the limits: `both`, `ietf` (the newest revision of the draft), `ietf-10`, `ietf-11`, `legacy` or `off`.
    headers: Headers = Text("both");

    /// A function of the request and the response, which Tidegate calls at the end of the response. If it returns true, the units of the
    /// request go back. In Node, a function of one argument gets the response, so the first argument has the type of both.
    refund_when: ResponseFunction;

    /// A function of the request and the response, which Tidegate calls at the end of the response. It returns the actual cost of the
    /// request, or nothing to keep the charge. With numbers by the names of units, each policy takes its units, and the others stay. With
    /// several policies, one number is for the policies with a cost, or for all if none has one. A list has a number for each policy, and a
    /// map has numbers by the names of policies. In Node, a function of one argument gets the response.
    settle: ActualCost;

    /// The end of a hold of a `concurrency` limit: the end of the `response`, or of the `handler`, which may run longer. In Node, `settle`
    /// and `refund_when` are called at the same moment.
    hold_until: Choice(&["response", "handler"]) = Text("response");

    /// The metadata of a request for the journal: a text, bytes, or a function of the request.
    meta: RequestMeta;

    /// The class of a request, one of the `priorities` of a policy: a name, or a function of the request. The function may return nothing,
    /// for no class. With several policies, it is for those with classes.
    priority: RequestPriority;

    /// The HTTP methods that are limited. HEAD counts as GET.
    methods: Methods = Words("all of them");

    /// Give each HTTP method a separate budget. HEAD shares the budget of GET.
    per_method: Flag = Flag(false);

    /// False turns the limit off, as if it were not written.
    enabled: OptionalFlag = Words("the environment variable `TIDEGATE_ENABLED`, else true");
};
