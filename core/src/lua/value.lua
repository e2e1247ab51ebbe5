-- Values: decode and encode.

-- The fields of each algorithm: a moment (7 bytes), a count (as wide as the tag says), the length of a list.
local SHAPES = { 'MC', 'MC', 'MMMS', 'MCCS', 'MCC', 'MC', 'MC', 'MC', 'MCS' }

-- Reads a value that another version of the policy wrote: what was used stays used for each limit whose algorithm and
-- period are the same, the others begin afresh. Returns nil and why when it is no value at all.
local function adopt(s, ask)
  local first = byte(s, 1)
  if floor(first / 32) ~= 1 then return nil, 'is no state of this version of Tidegate' end
  local full, position, tags, format = floor(first / 16) % 2 == 1, 2, {}, { '<' }
  for i = 1, first % 16 do
    local tag, period = byte(s, position, position + 1)
    if not period then return nil, 'holds a broken state' end
    local shape, length = SHAPES[floor(tag / 16)], period == 255 and 8 or 1
    if not shape then return nil, 'holds a broken state' end
    if floor(tag / 8) % 2 == 1 then shape = shape .. 'C' end
    tags[i] = { id = floor(tag / 16) .. sub(s, position + 1, position + length), shape = shape, at = #format }
    for field in shape:gmatch('.') do
      local width = field == 'M' and 7 or field == 'S' and 4 or full and 7 or tag % 8
      format[#format + 1] = 'I' .. width
    end
    position = position + 1 + length
  end
  if full then format[#format + 1] = 'I7' end
  local fits, fields = pcall(function() return { unpack_(table.concat(format), s, position) } end)
  if not fits then return nil, 'holds a broken state' end
  position = fields[#format]
  for _, tag in ipairs(tags) do
    if tag.shape:sub(-1) == 'S' then
      local length = fields[tag.at + #tag.shape - 1]
      tag.list = sub(s, position, position + length - 1)
      position = position + length
    end
  end
  local f = { unpack_(ask.format, ask.blank) }
  for _, L in ipairs(ask.limits) do
    if L.s then f[L.s] = '' end
    for i, tag in ipairs(tags) do
      if tag.id == L.id then
        for field = 0, L.fields - 1 do f[L.o + field] = fields[tag.at + field] or 0 end
        if L.s then
          f[L.s] = tag.list
        elseif #tag.shape > L.fields then
          if fields[tag.at + L.fields] > 0 then f[L.o] = f[L.o] + 1 end
        elseif #tag.shape < L.fields then
          f[L.o + 2] = 0
        end
        table.remove(tags, i)
        break
      end
    end
  end
  f.slow, f.blocked = true, full and fields[#format - 1] or 0
  return f
end

local function decode(s, ask)
  if s == '' then s = ask.blank end
  if #s >= ask.size then
    local f = { unpack_(ask.format, s) }
    if f[1] == ask.header then
      local lists = ask.lists
      if lists then
        local position = f[ask.slots + 1]
        for i = 1, #lists do
          local L = lists[i]
          local length = f[L.o + L.fields - 1]
          f[L.s] = sub(s, position, position + length - 1)
          position = position + length
        end
      end
      return f
    end
  end
  return adopt(s, ask)
end

local function encode(f, ask)
  local lists, s = ask.lists, nil
  if lists then
    for i = 1, #lists do
      local L = lists[i]
      f[L.o + L.fields - 1] = #f[L.s]
    end
  end
  local full = false
  if f.slow or ask.slow then
    full = f.blocked ~= nil and f.blocked > 0
    for _, L in ipairs(ask.limits) do
      for slot = L.o + 1, L.o + L.counts do full = full or f[slot] > L.w end
    end
  end
  if full then
    local slot = ask.slots + 1
    local header, kept = f[1], f[slot]
    f[1], f[slot] = ask.full_header, f.blocked or 0
    s = pack(ask.full_format, values(f, 1, slot))
    f[1], f[slot] = header, kept
  else
    s = pack(ask.format, values(f, 1, ask.slots))
  end
  if lists then
    for i = 1, #lists do s = s .. f[lists[i].s] end
  end
  return s
end

local function ends_of(f, ask)
  local ends = f.blocked or 0
  for _, L in ipairs(ask.limits) do
    local limit_ends = L.ends(f, L.o, L)
    if limit_ends > ends then ends = limit_ends end
  end
  return ends
end
