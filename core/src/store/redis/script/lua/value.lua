-- The bytes of an item in the list of each algorithm.
local ITEM = ITEMS_OF_ALGORITHMS

-- The lists of a value, which follow its fields. Returns where they end, or nil when an item is not whole.
local function split_lists(value, s, lists, position)
  for i = 1, #lists do
    local limit = lists[i]
    local length = value[limit.length]
    if length % ITEM[limit.algorithm] > 0 then return nil end
    value[limit.list] = sub(s, position, position + length - 1)
    position = position + length
  end
  return position
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
