//! The table of the fields that are read. To understand a service with other fields, add a line for each of them.

use std::ops::Range;
use std::time::Duration;

use super::super::field_names::{LIMIT, POLICY, RETRY_AFTER};
use super::waits::WaitReader;

/// The meaning of the value of a field.
#[derive(Clone, Copy)]
pub(super) enum Says {
    /// The time of the service.
    Date,
    /// The wait of the request, in a form of [`WaitReader`].
    Retry(fn(&WaitReader, &str) -> Option<Duration>),
    /// The scope of the wait: the request, or every request.
    Scope,
    /// A sign of a refusal: the response has one of these statuses, and this word is in the value.
    Refusal(&'static [u16], &'static str),
    /// The items of `RateLimit`. Since draft 08 each is a limit with the units that are left, in draft 07 all are members of one.
    Items,
    /// The items of `RateLimit-Policy`. Each is the quota of a limit.
    Policies,
    /// The count of a limit. In some dialects quotas as in `RateLimit-Policy` follow it.
    Limit,
    Remaining,
    /// The length of time until a reset, or its moment.
    Reset,
    /// The length of time until a reset, in a dialect that has a separate field for the moment.
    ResetAfter,
    /// The used units, `/` and the count.
    UsedOfLimit,
    /// The name of a limit.
    Name,
}

/// A line of the table.
pub(super) struct Dialect {
    /// How the name of the field begins.
    before: &'static str,
    /// How it ends, if a part of the name varies.
    after: Option<&'static str>,
    pub(super) says: Says,
    /// Fields of one family are about the same limits. Families that come first are believed first.
    pub(super) family: &'static str,
}

/// A line for a field. `*` in its name stands for nothing, or for `-` and the unit of the limit, its window, or both.
const fn row(family: &'static str, field: &'static str, says: Says) -> Dialect {
    let mut star = 0;
    while star < field.len() && field.as_bytes()[star] != b'*' {
        star += 1;
    }
    let (before, rest) = field.split_at(star);
    let after = if rest.is_empty() { None } else { Some(rest.split_at(1).1) };
    Dialect { before, after, says, family }
}

/// The first line that fits a field counts.
const DIALECTS: &[Dialect] = &[
    row("", "Date", Says::Date),
    // RFC 9110. Slack, Stripe and many others send it.
    row("", RETRY_AFTER, Says::Retry(WaitReader::of_text)),
    // OpenAI, Azure.
    row("", "retry-after-ms", Says::Retry(WaitReader::of_millis)),
    row("", "x-ms-retry-after-ms", Says::Retry(WaitReader::of_millis)),
    // MailerLite.
    row("", "X-RateLimit-Retry-After", Says::Retry(WaitReader::of_text)),
    // draft-ietf-httpapi-ratelimit-headers, 07 and later.
    row("ietf", LIMIT, Says::Items),
    // The same, 04 and later.
    row("ietf", POLICY, Says::Policies),
    // Atlassian's quotas.
    row("atlassian", "Beta-RateLimit", Says::Items),
    row("atlassian", "Beta-RateLimit-Policy", Says::Policies),
    // The same draft, 00 to 06, and GitLab.
    row("ietf", "RateLimit-Limit*", Says::Limit),
    row("ietf", "RateLimit-Remaining*", Says::Remaining),
    row("ietf", "RateLimit-ResetTime", Says::Reset),
    row("ietf", "RateLimit-Reset*", Says::Reset),
    row("ietf", "RateLimit-Name", Says::Name),
    // Anthropic.
    row("anthropic", "anthropic-ratelimit*-limit", Says::Limit),
    row("anthropic", "anthropic-ratelimit*-remaining", Says::Remaining),
    row("anthropic", "anthropic-ratelimit*-reset", Says::Reset),
    row("anthropic-priority", "anthropic-priority*-limit", Says::Limit),
    row("anthropic-priority", "anthropic-priority*-remaining", Says::Remaining),
    row("anthropic-priority", "anthropic-priority*-reset", Says::Reset),
    // Discord.
    row("x-ratelimit", "X-RateLimit-Reset-After", Says::ResetAfter),
    row("x-ratelimit", "X-RateLimit-Bucket", Says::Name),
    row("", "X-RateLimit-Global", Says::Scope),
    row("", "X-RateLimit-Scope", Says::Scope),
    // GitHub, OpenAI, Groq, Kong, Atlassian and most others.
    row("x-ratelimit", "X-RateLimit-Limit*", Says::Limit),
    row("x-ratelimit", "X-RateLimit-Remaining*", Says::Remaining),
    row("x-ratelimit", "X-RateLimit-Reset*", Says::Reset),
    row("x-ratelimit", "X-RateLimit-Resource", Says::Name),
    // X, Okta.
    row("x-rate-limit", "x-rate-limit-limit*", Says::Limit),
    row("x-rate-limit", "x-rate-limit-remaining*", Says::Remaining),
    row("x-rate-limit", "x-rate-limit-reset*", Says::Reset),
    // Shopify.
    row("shopify", "X-Shopify-Shop-Api-Call-Limit", Says::UsedOfLimit),
    // Stripe.
    row("", "Stripe-Rate-Limited-Reason", Says::Scope),
    // AWS: S3 answers SlowDown and others ThrottlingException without a wait.
    row("", "x-amz-request-id", Says::Refusal(&[503], "")),
    row("", "x-amzn-ErrorType", Says::Refusal(&[400, 429, 503], "Throttl")),
];

/// The first characters of the names of fields, each as a bit, `a` the first.
const FIRST_BYTES: u32 = {
    let (mut bits, mut at) = (0, 0);
    while at < DIALECTS.len() {
        bits |= 1 << (DIALECTS[at].before.as_bytes()[0].to_ascii_lowercase() - b'a');
        at += 1;
    }
    bits
};

/// The rank of a family. If several families are about one limit, the first counts.
pub(super) fn rank(family: &str) -> usize {
    DIALECTS.iter().position(|row| row.family == family).unwrap_or(DIALECTS.len())
}

/// The line for a field, and the part of its name that `*` stands for.
pub(super) fn find(name: &str) -> Option<(&'static Dialect, Range<usize>)> {
    // The table is long, and most fields are not in it.
    let letter = name.bytes().next()?.to_ascii_lowercase().checked_sub(b'a')?;
    if FIRST_BYTES.checked_shr(letter.into()).unwrap_or_default() & 1 == 0 {
        return None;
    }
    DIALECTS.iter().find_map(|row| Some((row, row.fits(name)?)))
}

/// A regular expression for the names, in lower case, of all fields but `Date`.
pub(super) fn speaking_fields() -> String {
    let speaking = DIALECTS.iter().filter(|row| !matches!(row.says, Says::Date));
    let patterns = speaking.map(|row| match row.after {
        Some(after) => format!("{}(?:-.*)?{after}", row.before),
        None => row.before.to_owned(),
    });
    format!("^(?:{})$", patterns.collect::<Vec<_>>().join("|")).to_ascii_lowercase()
}

impl Dialect {
    fn fits(&self, name: &str) -> Option<Range<usize>> {
        let begin = self.before.len();
        let same = |part: Range<usize>, expected: &str| {
            name.as_bytes().get(part).is_some_and(|part| part.eq_ignore_ascii_case(expected.as_bytes()))
        };
        if !same(0..begin, self.before) {
            return None;
        }
        let after = self.after.unwrap_or_default();
        let end = name.len().checked_sub(after.len()).filter(|end| *end >= begin && same(*end..name.len(), after))?;
        match name.as_bytes()[begin..end] {
            [] => Some(end..end),
            [b'-', ..] if self.after.is_some() => Some(begin + 1..end),
            _ => None,
        }
    }
}
