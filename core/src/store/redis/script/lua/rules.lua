local min, max = math.min, math.max

-- Of the key at hand: the names of the log's chunks and of the journal, and what is to be done once its value is written.
local companions
-- No moment of a stored value is later than this one, nor more than ten years or a bucket's longest time later if it is when
-- something ends. A clock that jumps back further makes what it wrote before impossible.
local LATEST, LONGEST = now + 30 * 86400000000, 316224000000000

-- The most units that refunds have taken of a charge.
local function taken_by_refunds(cost, charge) return charge.refunds_since and min(charge.refunded, cost) or 0 end

-- The units that are certainly left of a charge, where `counted` are in its entry, granule or window. Refunds take the oldest
-- units, so they have taken none of these while there are `older` ones.
local function left_of(cost, counted, older, charge)
  return min(counted, older and cost or cost - taken_by_refunds(cost, charge))
end

-- Of a check that is undone, takes the oldest units in place of those that refunds have taken, beside its `own`.
local function with_oldest(limit, value, cost, own, charge)
  if charge.undone and charge.refunds_since and own < cost then own = own + limit:refund(value, cost - own) end
  return own
end

-- Whether a limit admits `cost`, once its fields are brought to the time `now`. It comes before `charge`.
local function admits(limit, value, cost)
  limit:advance(value)
  return limit:used(value) + cost <= limit.count
end

-- The methods of a limit, where `value` is a decoded value:
--   advance, used, charge   as compiler.rs says; `charge` returns what `ends` would. A concurrency limit takes the id of the hold, a
--            log the later moment as of which the units count
--   possible  whether the fields are of a state that the rule can have: whatever bytes stand in a value, what follows does little
--            work and writes nothing that ends in centuries. What is no number is not possible
--   refund   gives `cost` back, the oldest units first, and returns how many units that were
--   undo     gives back what is still counted of a charge, and nothing else, and returns how many units that were; docs/adr/0028 has
--            the reasons. `charge` has the moment (`at`), all units that were charged then (`charged`, 0: not known), for how long
--            after it the units of a lease could be spent (`life`), when the bucket would have been empty again (`empty_at`, 0: not
--            known), how many units went back since (`refunded`), whether a refund without a Decision was made since, which took the
--            oldest units (`refunds_since`), and whether a check is undone, whose units no call used (`undone`)
--   ends     the moment from which on the fields mean the same as those of an unused key; 0 when they already do
--   charges_end  the same for what was charged before, also beside later charges
--   clear_ends   until when a charge from before a clear could be taken for a later one
--   unused   whether the fields mean the same as those of an unused key under every rule of the algorithm
-- Only some have: `adopt`, which reads what another calendar has stored, and says whether it has noted what has to be written,
-- `start`, which starts a bucket, `raise`, which makes its level last, `summary`, what a Decision needs of a log,
-- `renew` and `close` of holds.
local function ends(limit, value) return limit:ends(value) end
local function charges_end(limit, value) return limit:charges_end(value) end
local function is_unused(limit, value) return limit:used(value) == 0 end

-- Most calls do without some of the methods: refunds, leases and changes of holds need all.
local function rule_of(algorithm, x, z, all_methods)
  -- A table that begins with nine keys has room for sixteen.
  local rule = {
    advance = false, used = false, possible = false, charge = false, ends = false,
    charges_end = ends, clear_ends = charges_end, unused = is_unused, __index = false,
  }
  rule.__index = rule
  --<rules>
  return rule
end

