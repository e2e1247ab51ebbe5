-- Values in the form that they are stored in: the compact one, the full one, or that of another version of the policy.

-- The bytes of an item in the list of each algorithm, and its fields. M: a moment of 7 bytes; C: a count, as wide as the tag says; L: the length of a list.
local ITEM, FIELDS = ITEMS_OF_ALGORITHMS, FIELDS_OF_ALGORITHMS

-- The µs of the units of periods, by their numbers.
local UNITS = { 1000, 1000000, 60000000, 3600000000, 86400000000, 604800000000, 2592000000000, 31104000000000 }

-- The bytes of a period, its µs, of which a concurrency limit has none, and the number of its unit.
local function read_period(s, position)
  local code = byte(s, position)
  if code == 253 then
    local length, micros, unit = read_period(s, position + 5)
    return length + 5, micros, unit
  elseif code == 255 then
    local low, high = unpack_('<I6B', s, position + 1)
    return 8, low + high % 16 * 2 ^ 48, floor(high / 16)
  end
  local unit = floor(code / 31)
  return 1, UNITS[unit + 1] and UNITS[unit + 1] * (code % 31 + 1), unit
end

-- A tag, the format of the fields that follow it where a count has 7 bytes, and the position behind it.
local function read_tag(s, position)
  local tag_byte = byte(s, position)
  local algorithm, width = floor(tag_byte / 16), tag_byte % 8
  local length, micros, unit = read_period(s, position + 1)
  if width < 1 or not micros and algorithm ~= CONCURRENCY then error('tag') end
  local fields = FIELDS[algorithm]
  if floor(tag_byte / 8) % 2 == 1 then fields = fields .. 'C' end
  local tag = {
    algorithm = algorithm, id = algorithm .. sub(s, position + 1, position + length), fields = fields, micros = micros,
    unit = unit, first = 1, list = #fields + 1,
  }
  local after = position + 1 + length
  if algorithm == TOKEN_BUCKET or algorithm == GCRA or algorithm == LEAKY_BUCKET then
    tag.count = unpack_('<I' .. width, s, after)
    after = after + width
    if tag.count < 1 then error('tag') end
  end
  tag.text, tag.width = sub(s, position, after - 1), width
  return tag, after
end

-- The format of the fields of a tag, where a count has that many bytes.
local function format_of(tag, width)
  return (tag.fields:gsub('.', function(field) return 'I' .. (field == 'M' and 7 or field == 'L' and 4 or width) end))
end

-- The states of limits behind their tags: `numbers` has the fields, and the lists follow at `position`. Returns where they end.
local function read_states(tags, numbers, s, position)
  local slot = 1
  for _, tag in ipairs(tags) do
    tag.values = { values(numbers, slot, slot + #tag.fields - 1) }
    slot = slot + #tag.fields
    if tag.fields:sub(-1) == 'L' then
      local length = tag.values[#tag.values]
      tag.values[tag.list] = sub(s, position, position + length - 1)
      if #tag.values[tag.list] < length or length % ITEM[tag.algorithm] > 0 then error('list') end
      position = position + length
    end
  end
  return position
end

local LATEST_END, LATEST_DRAIN = LATEST + LONGEST, min(LATEST + 2 ^ 52, MAX)

local function require_at_most(most, ...)
  for i = 1, select('#', ...) do
    if not (select(i, ...) <= most) then error('moment') end
  end
end

-- See learned.lua.
local learned_of

-- The annex: its sections by their kinds, as docs/adr/0028 lists them. A kind that is not known stays as it is.
local function read_annex(value, s)
  local position = 1
  while position <= #s do
    local kind, length, at = unpack_('<BH', s, position)
    local after = at + length
    local content = sub(s, at, after - 1)
    if #content < length then error('annex') end
    if kind == SECTION_BLOCK then
      value.blocked_until, value.block_level = unpack_('<I7B', content)
      require_at_most(LATEST_END, value.blocked_until)
    elseif kind == SECTION_TRACES then
      local cleared, refunded_at, since, refunded, ends = unpack_('<I7I7I7I7I7', content)
      require_at_most(LATEST, cleared, refunded_at, since)
      require_at_most(MAX, refunded)
      require_at_most(LATEST_DRAIN, ends)
      if ends > now then
        value.traces = { cleared = cleared, refunded_at = refunded_at, since = since, refunded = refunded, ends = ends }
      end
    elseif kind == SECTION_GENERATION then
      value.generation = unpack_('<I7', content)
      require_at_most(MAX, value.generation)
    elseif kind == SECTION_OVERRIDE then
      local ends = unpack_('<I7', content)
      require_at_most(LATEST_DRAIN, ends)
      if ends == 0 or ends > now then value.override = { ends = ends, text = sub(content, 8) } end
    elseif kind == SECTION_TURNS then
      local turns_until = unpack_('<I7', content)
      require_at_most(LATEST_DRAIN, turns_until)
      if turns_until > now then value.turns_until = turns_until end
    elseif kind == SECTION_LEARNED then
      local learned = learned_of().read(content)
      if learned_of().ends(learned) > now then value.learned = learned end
    elseif kind == SECTION_LINE then
      for at = 1, length, 22 do
        local id, overtaken, seen, arrived = unpack_('<I7BI7I7', content, at)
        require_at_most(LATEST, seen, arrived)
        if seen + PATIENCE_OF_WAITERS > now then
          value.line = value.line or {}
          value.line[#value.line + 1] = { id = id, overtaken = overtaken, seen = seen, arrived = arrived }
        end
      end
    elseif kind == SECTION_OTHER_LIMIT then
      value.others = value.others or {}
      local ends = unpack_('<I7', content)
      require_at_most(LATEST_DRAIN, ends)
      value.others[#value.others + 1] = { ends = ends, text = content }
    else
      value.unknown = (value.unknown or '') .. sub(s, position, after - 1)
    end
    position = after
  end
end

local function section(kind, content) return pack('<BH', kind, #content) .. content end

-- The annex of a value; empty when there is none. A caller gets of limits of another release only their tags: `brief`.
local function annex_of(value, brief)
  local s, traces = value.unknown or '', value.traces
  if (value.blocked_until or 0) > 0 then s = s .. section(SECTION_BLOCK, pack('<I7B', value.blocked_until, value.block_level or 0)) end
  if traces then
    s = s .. section(SECTION_TRACES, pack('<I7I7I7I7I7', traces.cleared, traces.refunded_at, traces.since, traces.refunded, traces.ends))
  end
  if value.generation then s = s .. section(SECTION_GENERATION, pack('<I7', value.generation)) end
  if value.override then s = s .. section(SECTION_OVERRIDE, pack('<I7', value.override.ends) .. value.override.text) end
  if value.turns_until then s = s .. section(SECTION_TURNS, pack('<I7', value.turns_until)) end
  if value.line then
    local parts = {}
    for i, waiter in ipairs(value.line) do parts[i] = pack('<I7BI7I7', waiter.id, waiter.overtaken, waiter.seen, waiter.arrived) end
    s = s .. section(SECTION_LINE, table.concat(parts))
  end
  if value.learned then s = s .. section(SECTION_LEARNED, learned_of().write(value.learned)) end
  for _, other in ipairs(value.others or {}) do
    if other.ends > now then s = s .. section(SECTION_OTHER_LIMIT, brief and sub(other.text, 1, select(2, read_tag(other.text, 8)) - 1) or other.text) end
  end
  return s
end

-- Converts the state of a bucket that had `old_count` in its period, which has `count` now. Units that had drained by then count
-- as drained, and the other units stay. A fraction of a µs that the new interval cannot express is rounded up.
local function rescale(value, limit, old_count, count, since, units, fraction)
  local period = limit.period * (count / limit.x)
  local divisor, rest = old_count, period
  while rest > 0 do divisor, rest = rest, divisor % rest end
  local x = old_count / divisor
  local old = setmetatable({ first = 1, period = period / divisor, x = x }, rule_of(GCRA, x, 0))
  local ends = old:ends({ since, units, fraction })
  if ends <= now then
    if ends > since then since = ends end
    units, fraction = 0, 0
  elseif fraction > 0 and x ~= limit.x then
    since, fraction = since + 1, 0
  end
  value[limit.first], value[limit.first + 1] = since, units < limit.y and units or limit.y
  if limit.x > 1 then value[limit.first + 2] = fraction end
end

-- Until when a state is kept of a limit that this version does not have: not before it ends.
local function kept_until(tag)
  if tag.count then return min(tag.values[1] + ceil(tag.values[2] * (tag.micros / tag.count)), MAX) end
  -- Its granules are not known.
  if tag.algorithm == SLIDING_WINDOW then return tag.values[1] + 2 * tag.micros end
  local months = tag.algorithm == CALENDAR_WINDOW and tag.unit > 5 and tag.micros / UNITS[7] or 0
  tag.period, tag.x, tag.y = months == 0 and tag.micros or 0, months, 0
  if tag.adopt then tag:adopt(tag.values) end
  return tag:ends(tag.values)
end

-- The states of limits that this version does not have, those that are kept longest, at most as many as a policy may have.
-- Limits of one algorithm and period are told apart by their order alone: they stay together, or none does.
local function kept(stored)
  local ends, others = {}, {}
  for _, tag in ipairs(stored) do
    setmetatable(tag, rule_of(tag.algorithm, 1, 0))
    if not tag:unused(tag.values) then ends[tag.id] = max(ends[tag.id] or 0, tag.kept_until or kept_until(tag)) end
  end
  for place, tag in ipairs(stored) do
    local list, last = tag.values[tag.list], ends[tag.id]
    if last then
      require_at_most(LATEST_DRAIN, last)
      if list then tag.values[#tag.fields] = #list end
      local text = pack('<I7', last) .. tag.text .. pack('<' .. format_of(tag, 7), values(tag.values, 1, #tag.fields)) .. (list or '')
      others[#others + 1] = { ends = last, place = place, text = text }
    end
  end
  table.sort(others, function(a, b) return a.ends > b.ends or a.ends == b.ends and a.place < b.place end)
  while #others > 15 do others[#others] = nil end
  return #others > 0 and others or nil
end

-- Reads a value that another version of the policy wrote, or version 1 of the format. What was used stays used for each limit
-- whose algorithm and period are the same; the others start unused, and what is left stays until it ends. Returns nil and the
-- reason when it is no value of Tidegate.
local function convert(s, instruction)
  local version, full = floor(byte(s, 1) / 32), floor(byte(s, 1) / 16) % 2 == 1
  if version < 1 or version > 2 then return nil, 'is no state of this version of Tidegate' end
  local stored, position, format = {}, 2, '<'
  for i = 1, byte(s, 1) % 16 do
    stored[i], position = read_tag(s, position)
    format = format .. format_of(stored[i], full and 7 or stored[i].width)
  end
  if full then format = format .. (version == 1 and 'I7' or 'I4') end
  local numbers = { unpack_(format, s, position) }
  position = read_states(stored, numbers, s, numbers[#numbers])
  local value = { unpack_(instruction.format, instruction.unused) }
  value.converted = true
  if full and version == 1 then value.blocked_until = numbers[#numbers - 1] end
  if full and version == 2 then
    local annex = numbers[#numbers - 1]
    read_annex(value, sub(s, position, position + annex - 1))
    position = position + annex
  end
  if position ~= #s + 1 then error('length') end
  for _, other in ipairs(value.others or {}) do
    if other.ends > now then
      local tag, at = read_tag(other.text, 8)
      local own = { unpack_('<' .. format_of(tag, 7), other.text, at) }
      read_states({ tag }, own, other.text, own[#own])
      tag.kept_until = other.ends
      stored[#stored + 1] = tag
    end
  end
  local at = 2
  for _, limit in ipairs(instruction.limits) do
    local own
    own, at = read_tag(instruction.header, at)
    if limit.list > 0 then value[limit.list] = '' end
    for i, tag in ipairs(stored) do
      if tag.id == own.id then
        if tag.count ~= own.count then
          rescale(value, limit, tag.count, own.count, tag.values[1], tag.values[2], tag.values[3] or 0)
        else
          for field = 1, limit.fields do value[limit.first + field - 1] = tag.values[field] end
          if limit.list > 0 then value[limit.list] = tag.values[tag.list] end
        end
        table.remove(stored, i)
        break
      end
    end
  end
  value.others = kept(stored)
  if value.learned then learned_of().forget_places(value.learned) end
  return value
end

-- The latest of the moments that a method of the limits returns.
local function latest(method, value, instruction)
  local ends = 0
  for _, limit in ipairs(instruction.limits) do
    local limit_ends = limit[method](limit, value)
    if limit_ends > ends then ends = limit_ends end
  end
  return ends
end

-- From this moment on the key reads as unused; 0 when it already does.
local function meaning_ends(value, instruction)
  local ends = latest('ends', value, instruction)
  if (value.blocked_until or 0) > ends then ends = value.blocked_until end
  for _, other in ipairs(value.others or {}) do ends = max(ends, other.ends) end
  -- Without the grace period a bucket that does not start full would start again.
  return ends > 0 and ends + instruction.grace or 0
end

-- Until when the level of the last block is remembered; 0 where it is not.
local function level_ends(value, instruction)
  if not instruction.level_life or (value.block_level or 0) == 0 then return 0 end
  return value.blocked_until + instruction.level_life
end

-- The same for traces and levels too: then the key is gone.
local function ends_of(value, instruction)
  local ends = max(meaning_ends(value, instruction), level_ends(value, instruction))
  if value.traces and value.traces.ends > ends then ends = value.traces.ends end
  for _, waiter in ipairs(value.line or {}) do ends = max(ends, waiter.seen + PATIENCE_OF_WAITERS) end
  if value.learned then ends = max(ends, learned_of().ends(value.learned)) end
  -- Numbers of a key without an end are for ever.
  if value.override then ends = max(ends, value.override.ends > 0 and value.override.ends or math.huge) end
  return ends
end

-- A decoded value in a form of the policy at hand, or nil when it has another one.
local function decode(s, instruction)
  if s == '' then s = instruction.unused end
  local narrow, value = instruction.narrow_header, nil
  if narrow and #s == instruction.narrow_size and sub(s, 1, #narrow) == narrow then
    value = { unpack_(instruction.narrow_format, s) }
    value[1] = instruction.header
    return value
  end
  local annex, full = 0, sub(s, 1, #instruction.full_header) == instruction.full_header
  if full then
    local slot = instruction.slots + 1
    value = { unpack_(instruction.full_format, s) }
    annex = value[slot]
    value[1], value[slot], value[slot + 1] = instruction.header, value[slot + 1], nil
  else
    if #s < #instruction.unused then return nil end
    value = { unpack_(instruction.format, s) }
    if value[1] ~= instruction.header then return nil end
  end
  local position = value[instruction.slots + 1]
  local lists = instruction.lists
  for i = 1, #lists do
    local limit = lists[i]
    local length = value[limit.length]
    if length % ITEM[limit.algorithm] > 0 then error('length') end
    value[limit.list] = sub(s, position, position + length - 1)
    position = position + length
  end
  if position + annex ~= #s + 1 then error('length') end
  if #instruction.lists == 0 then value[instruction.slots + 1] = nil end
  if full then read_annex(value, sub(s, #s - annex + 1)) end
  return value
end

-- The value itself, of which each limit has a state that its rule can have.
local function require_possible(value, instruction)
  for _, limit in ipairs(instruction.limits) do
    if not limit:possible(value) then error('state') end
  end
  return value
end

-- Each limit of an instruction meets what another calendar has stored.
local function adopt(value, instruction)
  for _, limit in ipairs(instruction.limits) do
    if limit.adopt and limit:adopt(value) then value.adopted = true end
  end
end

-- What was learned of a key is left free of the limits of an instruction, which other keys may have used.
local function reserve_learned(value, instruction)
  if value.learned or instruction.reserves then
    instruction.reserves = value.learned
    learned_of().reserve(value.learned, instruction)
  end
end

-- A decoded value in whatever form. `converted` says that its stored form is not the one of this policy. Returns nil and the
-- reason when it is no value of Tidegate.
local function read_unchecked(s, instruction)
  local value, reason = decode(s, instruction), nil
  if not value then value, reason = convert(s, instruction) end
  if not value then return nil, reason end
  adopt(value, instruction)
  require_possible(value, instruction)
  if instruction.grace > 0 then
    -- Buckets that do not start full have not started when all is over, grace period included.
    if meaning_ends(value, instruction) <= now then
      for _, limit in ipairs(instruction.limits) do
        for slot = limit.first, limit.start and limit.first + limit.fields - 1 or 0 do value[slot] = 0 end
      end
    end
    value.converted = true
  end
  reserve_learned(value, instruction)
  return value
end

-- The error of a command that failed: a table, or a text, as servers say it of `redis.call`. Nil where a rule failed: the error of that
-- begins with its line.
local function error_of_command(why)
  if type(why) == 'table' then return why.err end
  return not string.find(why, '^%S*:%d+: ') and why or nil
end

-- The same where the bytes may be any.
local function read(s, instruction)
  local fine, value, reason = pcall(read_unchecked, s, instruction)
  if fine then return value, reason end
  if error_of_command(value) then error(value, 0) end
  return nil, 'holds a broken state'
end

-- In the narrow form or else the compact one when every number fits and no block is stored, else in the full form.
local function write(value, instruction, brief)
  local annex = annex_of(value, brief)
  local full = annex ~= ''
  local narrow = server_time and instruction.narrow_header
  for _, limit in ipairs(instruction.limits) do
    for slot = limit.first + 1, limit.first + limit.counts do
      full = full or value[slot] > limit.max_compact
      narrow = narrow and value[slot] <= 255 and narrow
    end
  end
  if narrow and not full then return pack(instruction.narrow_format, narrow, values(value, 2, instruction.slots)) end
  local lists = instruction.lists
  for i = 1, #lists do value[lists[i].length] = #value[lists[i].list] end
  -- The length of the annex goes to the slot after the fields, which is the slot of the first list.
  local slot = instruction.slots + 1
  local header, list = value[1], value[slot]
  if full then value[1], value[slot] = instruction.full_header, #annex end
  local s = pack(full and instruction.full_format or instruction.format, values(value, 1, full and slot or instruction.slots))
  value[1], value[slot] = header, list
  for i = 1, #lists do s = s .. value[lists[i].list] end
  return s .. annex
end
