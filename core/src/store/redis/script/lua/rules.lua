local byte = string.byte

-- Of the key at hand: the names of the log's chunks and of the journal, and what is to be done once its value is written.
local companions

-- The functions of an algorithm's rule: admits, charge, possible, refund, ends, and what only some have: start, summary, renew,
-- close, used, raise, give_back.
--   admits  brings the fields to the time `now` and says whether `cost` is admitted; it comes before charge
--   charge  charges `cost`, and returns what `ends` would
--   possible  whether the fields are of a state that the rule can have, where no moment is later than `latest`: whatever bytes
--           stand in a value, what follows does little work and writes nothing that ends in centuries. What is no number is
--           not possible
--   refund  gives `cost` back, the oldest units first, and returns how many units that were
--   give_back  gives back what is still counted of a charge, and returns how many units that were; see undo.lua
--   ends    the moment from which on the fields mean the same as those of an unused key; 0 when they already do
-- `value` is a decoded value, `first` the slot of the limit's first field. `limit` has the limit's numbers: count, period,
-- and x, y, z, which the file of the algorithm explains; limit.list is the slot of its list.
-- `whole` says that limit.x is 1, `initial` that limit.z is not 0, `check_only` that a check needs the first three alone. To a check
-- a first field that is not later than now says enough of some rules: those have no `possible` for it. The caller sees a count
-- that is too large.
-- Of the rules that one_limit.lua takes, these three end with their only `return`, and change no argument.
