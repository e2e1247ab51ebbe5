-- An instruction: an operation with the numbers of its policy, as instruction.rs and plan/stored/script_arguments.rs write it.
--   '<BBBBd'    operation, flags, number of limits, slots of header and fields, cost
--   '<Bc0Bc0Hc0' header, format and the value of an unused key, in the compact form
--   '<BBc0Bc0'  size of a value in the narrow form, its header and format; 0 and empty where the policy has none
--   '<BBBBddddd' for each limit: algorithm, slots of its first field, its list and the length of its list (0: it has no
--                list), count, period, x, y, z; of a calendar of one's own count and four edges, see calendar_window.lua
--   '<H'        the length of what follows, up to the metadata
--   '<ddHddB'   block in µs (of GIVE_BACK: the moment of the charge), hold (of LEASE and GIVE_BACK: the life, of TURN: the longest wait), length of the journal,
--               its TTL, grace period, the number of lengths of a block, 0 where all blocks have one, 32 where calls are counted
--               before anything is learned, 64 more where nothing else limits them, and 128 where the call brings numbers of its key
--   '<Bc0Bc0'   header and format of the full form
--   '<BBdBc0Bc0' for each limit: its fields, its counts, the largest count in the compact form, its identity, the prefix of
--                its chunks
--   '<d' for how long after a block its level is remembered, and '<d' for each length of a block, where they become longer
--   '<Hc0'      the numbers of the key that the call brings, as text, where it brings any
--   then the metadata, to the end; of GIVE_BACK '<dddd', the generation (0: any), the units that had gone back at the charge,
--   the last clear that was known then and the units charged, and '<d' for each limit: when its bucket would have been empty again
--   (0: not known, -1: it was not charged).
-- With the flag of amounts a trailer begins with '<dd' for each limit, the units that the call takes of it, of which no units are
-- neither asked nor charged, and what has to stay free beside them; then, of a caller that waits, '<ddd': its number in the line, for
-- how many µs it has waited, and for how many the one behind it has (-1: there is none); of a TURN that is taken instead of another
-- '<d', when that one was taken. Of GIVE_BACK it ends with '<dd' for each
-- limit, the units that go back and those that were charged.
-- Flags: 1 shadow, 2 charges_denials, 4 grace, 8 block, 16 hold, 32 the caller waits (of GIVE_BACK: only where nothing was charged
-- behind it, of TURN: instead of another), 64 undo of a check (of CHECK: no attempt where it is refused), 128 amounts. head.lua and check.lua read the first parts too.
local rules = {}
-- Whether an instruction has edges of a calendar that are not those around now.
local edges_are_others
local function read_instruction(s, at)
  local operation, flags, n, slots, cost, header, format, unused, narrow_size, narrow_header, narrow_format
  operation, flags, n, slots, cost, header, format, unused, narrow_size, narrow_header, narrow_format, at =
    unpack_('<BBBBdBc0Bc0Hc0BBc0Bc0', s, at)
  local limits, lists = {}, {}
  local instruction = {
    limits = limits, lists = lists, operation = operation, slots = slots, cost = cost, header = header, format = format,
    unused = unused, text = s, narrow_size = narrow_size, narrow_header = narrow_size > 0 and narrow_header,
    narrow_format = narrow_format,
    -- Take, lease and give back ask the limits about one unit.
    asked = (operation == TAKE or operation == LEASE or operation == GIVE_BACK) and 1 or cost,
    shadow = flags % 2 == 1, charges_denials = floor(flags / 2) % 2 == 1, refusal_writes = flags % 128 >= 2,
    is_last = floor(flags / 32) % 2 == 1, undone = floor(flags / 64) % 2 == 1, amounts = flags >= 128,
  }
  local all_methods = not (operation == CHECK or operation == TAKE or operation == PEEK or operation == CHARGE)
  for i = 1, n do
    local algorithm, first, list, length, count, period, x, y, z
    algorithm, first, list, length, count, period, x, y, z, at = unpack_('<BBBBddddd', s, at)
    if algorithm == CALENDAR_WINDOW and z > 0 then
      instruction.has_edges = true
      if now >= y then period, x, y = -1 - x, -1 - y, z end
      if now < period or now >= y then edges_are_others = true end
    end
    local kind = algorithm + (x == 1 and 16 or 0) + (z > 0 and 32 or 0) + (all_methods and 64 or 0)
    local rule = rules[kind]
    if not rule then
      rule = rule_of(algorithm, x, z, all_methods)
      rules[kind] = rule
    end
    -- The methods that a check calls are found faster here than in the rule. A table that begins with more than sixteen keys
    -- does not grow by those that follow.
    local limit = setmetatable({
      algorithm = algorithm, first = first, list = list, length = length, count = count, period = period, x = x, y = y, z = z,
      advance = rule.advance, used = rule.used, charge = rule.charge, possible = rule.possible, ends = rule.ends,
      summary = rule.summary, fields = 0, counts = 0, reserve = 0, learned = 0,
    }, rule)
    limits[i] = limit
    if list > 0 then lists[#lists + 1] = limit end
    if limit.summary then instruction.has_summaries = true end
  end
  instruction.block, instruction.hold, instruction.journal, instruction.journal_ttl, instruction.grace,
    instruction.levels, instruction.full_header, instruction.full_format, at = unpack_('<ddHddBBc0Bc0', s, at + 2)
  for i = 1, n do
    local limit = limits[i]
    limit.fields, limit.counts, limit.max_compact, limit.id, limit.chunks, at = unpack_('<BBdBc0Bc0', s, at)
  end
  local has_override, marks = instruction.levels >= 128, floor(instruction.levels / 32) % 4
  instruction.learns, instruction.asks = marks > 0, marks > 1
  instruction.levels, instruction.override = instruction.levels % 32, ''
  if instruction.levels > 0 then
    local lengths = { unpack_('<' .. string.rep('d', instruction.levels + 1), s, at) }
    instruction.lengths, instruction.level_life = lengths, lengths[1]
    at = at + 8 * (instruction.levels + 1)
  end
  if has_override then instruction.override, at = unpack_('<Hc0', s, at) end
  if instruction.amounts and operation ~= GIVE_BACK then
    for i = 1, n do
      local units
      units, limits[i].reserve, at = unpack_('<dd', s, at)
      -- A take finds out how many it takes.
      if operation ~= TAKE then limits[i].units = units end
    end
  end
  if instruction.is_last and operation == CHECK then
    local waiter, age, next_age
    waiter, age, next_age, at = unpack_('<ddd', s, at)
    instruction.line = { id = waiter, arrived = max(now - age, 0), next_age = next_age }
  end
  if instruction.is_last and operation == TURN then instruction.instead_of, at = unpack_('<d', s, at) end
  instruction.meta = at
  return instruction
end

-- What the loops left is of few instructions, so each is read when it is needed. A check of a loop has found the edges to hold.
local instructions = setmetatable({}, {
  __index = function(known, i)
    known[i] = read_instruction(ARGV[i], i == 1 and INSTRUCTION or 1)
    return known[i]
  end,
})
if not (program and grouping == CHECKS) then
  for i = 1, instruction_count do local _ = instructions[i] end
  if edges_are_others then return other_edges() end
end
