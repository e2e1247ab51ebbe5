-- The bytes of an item in the list of each algorithm that has one.
local ITEM = { nil, nil, 14, 14, nil, nil, nil, nil, 21 }

-- Whether a text is as long as its value says, whose fields and what else has no list are `size` bytes.
local function is_whole(value, s, size, lists)
  for i = 1, lists and #lists or 0 do
    local limit = lists[i]
    local length = value[limit.length]
    if length % ITEM[limit.algorithm] > 0 then return false end
    size = size + length
  end
  return size == #s
end

-- The lists of a value, which follow its fields: `slots` is the slot of the last field.
local function split_lists(value, s, lists, slots)
  local position = value[slots + 1]
  for i = 1, #lists do
    local limit = lists[i]
    local length = value[limit.length]
    value[limit.list] = sub(s, position, position + length - 1)
    position = position + length
  end
end

local function encode(value, format, slots, lists)
  for i = 1, #lists do
    local limit = lists[i]
    value[limit.length] = #value[limit.list]
  end
  local s = pack(format, values(value, 1, slots))
  for i = 1, #lists do s = s .. value[lists[i].list] end
  return s
end
