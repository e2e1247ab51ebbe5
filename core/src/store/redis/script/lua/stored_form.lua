-- Values in the form that they are stored in: the compact one, the full one, or that of another version of the policy.

-- The fields of each algorithm. M: a moment of 7 bytes; C: a count, as wide as the tag says; L: the length of a list.
local FIELDS = { 'MC', 'MC', 'MMML', 'MCCL', 'MCC', 'MC', 'MC', 'MC', 'MCL' }

-- The tags of a header, the format of what follows it and its position, and whether it is of the full form. Nil when it is
-- no header.
local function read_tags(s)
  local full, position, tags, format = floor(byte(s, 1) / 16) % 2 == 1, 2, {}, { '<' }
  for i = 1, byte(s, 1) % 16 do
    local tag_byte, period = byte(s, position, position + 1)
    if not period then return nil end
    local algorithm, width, length = floor(tag_byte / 16), tag_byte % 8, period == 255 and 8 or 1
    local fields = FIELDS[algorithm]
    if not fields then return nil end
    if floor(tag_byte / 8) % 2 == 1 then fields = fields .. 'C' end
    local tag = { id = algorithm .. sub(s, position + 1, position + length), fields = fields, first = #format }
    tags[i] = tag
    position = position + 1 + length
    if algorithm >= 6 and algorithm <= 8 then
      if #s < position + width - 1 then return nil end
      tag.count = unpack_('<I' .. width, s, position)
      position = position + width
    end
    for field in fields:gmatch('.') do
      format[#format + 1] = 'I' .. (field == 'M' and 7 or field == 'L' and 4 or full and 7 or width)
    end
  end
  return tags, format, position, full
end

-- Converts the state of a bucket that had `old_count` in its period, which has `count` now. What had drained by then counts
-- as drained; the other units stay what they are. A fraction of a µs that the new interval cannot express is rounded up.
local function rescale(value, limit, old_count, count, since, units, fraction)
  local period = limit.period * (count / limit.x)
  local divisor, rest = old_count, period
  while rest > 0 do divisor, rest = rest, divisor % rest end
  local old = { period = period / divisor, x = old_count / divisor }
  local _, _, _, old_ends = rule_of(7, old.x == 1, false)
  local ends = old_ends({ since, units, fraction }, 1, old)
  if ends <= now then
    if ends > since then since = ends end
    units, fraction = 0, 0
  elseif fraction > 0 and old.x ~= limit.x then
    since, fraction = since + 1, 0
  end
  value[limit.first], value[limit.first + 1] = since, units < limit.y and units or limit.y
  if limit.x > 1 then value[limit.first + 2] = fraction end
end

-- Reads a value that another version of the policy wrote. What was used stays used for each limit whose algorithm and period
-- are the same; the others start unused. Returns nil and the reason when it is no value of Tidegate.
local function convert(s, instruction)
  if floor(byte(s, 1) / 32) ~= 1 then return nil, 'is no state of this version of Tidegate' end
  local tags, format, position, full = read_tags(s)
  if not tags then return nil, 'holds a broken state' end
  local own_tags = read_tags(instruction.header)
  if full then format[#format + 1] = 'I7' end
  local fits, fields = pcall(function() return { unpack_(table.concat(format), s, position) } end)
  if not fits then return nil, 'holds a broken state' end
  position = fields[#format]
  for _, tag in ipairs(tags) do
    if tag.fields:sub(-1) == 'L' then
      local length = fields[tag.first + #tag.fields - 1]
      tag.list = sub(s, position, position + length - 1)
      position = position + length
    end
  end
  local value = { unpack_(instruction.format, instruction.unused) }
  for index, limit in ipairs(instruction.limits) do
    if limit.list > 0 then value[limit.list] = '' end
    for i, tag in ipairs(tags) do
      if tag.id == limit.id then
        local count, first = own_tags[index].count, tag.first
        if tag.count ~= count then
          local fraction = #tag.fields == 3 and fields[first + 2] or 0
          rescale(value, limit, tag.count, count, fields[first], fields[first + 1], fraction)
        else
          for field = 0, limit.fields - 1 do value[limit.first + field] = fields[first + field] end
          if limit.list > 0 then value[limit.list] = tag.list end
        end
        table.remove(tags, i)
        break
      end
    end
  end
  value.converted, value.blocked_until = true, full and fields[#format - 1] or 0
  return value
end

-- From this moment on the key reads as unused; 0 when it already does.
local function ends_of(value, instruction)
  local ends = value.blocked_until or 0
  for _, limit in ipairs(instruction.limits) do
    local limit_ends = limit.ends(value, limit.first, limit)
    if limit_ends > ends then ends = limit_ends end
  end
  -- Without the grace period a bucket that does not start full would start again.
  return ends > 0 and ends + instruction.grace or 0
end

-- A decoded value in the compact or the narrow form of the policy at hand, or nil when it has another form.
local function decode(s, instruction)
  if s == '' then s = instruction.unused end
  local narrow, value = instruction.narrow_header, nil
  if narrow and #s == instruction.narrow_size and sub(s, 1, #narrow) == narrow then
    value = { unpack_(instruction.narrow_format, s) }
    value[1] = instruction.header
    return value
  end
  if #s < #instruction.unused then return nil end
  value = { unpack_(instruction.format, s) }
  if value[1] ~= instruction.header then return nil end
  split_lists(value, s, instruction.lists, instruction.slots)
  return value
end

-- A decoded value in whatever form. `converted` says that its stored form is not the one of this policy. Returns nil and the
-- reason when it is no value of Tidegate.
local function read(s, instruction)
  local value, reason = decode(s, instruction), nil
  if value and instruction.grace == 0 then return value end
  if not value then value, reason = convert(s, instruction) end
  if value and instruction.grace > 0 then
    -- Buckets that do not start full have not started when all is over, grace period included.
    if ends_of(value, instruction) <= now then
      for _, limit in ipairs(instruction.limits) do
        for slot = limit.first, limit.start and limit.first + limit.fields - 1 or 0 do value[slot] = 0 end
      end
    end
    value.converted = true
  end
  return value, reason
end

-- In the narrow form or else the compact one when every number fits and no block is stored, else in the full form.
local function write(value, instruction)
  local full = value.blocked_until ~= nil and value.blocked_until > 0
  local narrow = server_time and instruction.narrow_header
  for _, limit in ipairs(instruction.limits) do
    for slot = limit.first + 1, limit.first + limit.counts do
      full = full or value[slot] > limit.max_compact
      narrow = narrow and value[slot] <= 255 and narrow
    end
  end
  if narrow and not full then return pack(instruction.narrow_format, narrow, values(value, 2, instruction.slots)) end
  if not full then return encode(value, instruction.format, instruction.slots, instruction.lists) end
  for _, limit in ipairs(instruction.lists) do value[limit.length] = #value[limit.list] end
  -- The block goes to the slot after the fields, which is the slot of the first list.
  local slot = instruction.slots + 1
  local header, list = value[1], value[slot]
  value[1], value[slot] = instruction.full_header, value.blocked_until or 0
  local s = pack(instruction.full_format, values(value, 1, slot))
  value[1], value[slot] = header, list
  for _, limit in ipairs(instruction.lists) do s = s .. value[limit.list] end
  return s
end
