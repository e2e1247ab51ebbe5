-- How each algorithm takes back what was charged at `charged_at`: exactly that, or less when some of it has gone since. The
-- units of other calls are not touched, while a refund takes the newest units, whichever call charged them.
local function undo_window(value, first, now, cost, limit, charged_at)
  if value[first] <= charged_at then limit.refund(value, first, now, cost, limit) end
end

local function undo_calendar_window(value, first, now, cost, limit, charged_at)
  local charged = { 0, 0 }
  limit.admits(charged, 1, charged_at, 0, limit)
  if charged[1] == value[first] then limit.refund(value, first, now, cost, limit) end
end

local function undo_sliding_log(value, first, now, cost, limit, charged_at)
  limit.admits(value, first, now, 0, limit)
  local list, before = value[limit.list], value[first] == value[first + 1] and value[first + 2]
  for i = 1, #list, 14 do
    local moment, total = unpack_('<I7I7', list, i)
    -- The units of the first entry are not known when there are chunks before it: then nothing is taken back.
    if moment == charged_at and before then
      local parts, units = { sub(list, 1, i - 1) }, (total - before) % (MAX + 1)
      if cost > units then cost = units end
      for j = i, #list, 14 do
        moment, total = unpack_('<I7I7', list, j)
        total = (total - cost) % (MAX + 1)
        if j > i or total ~= before then parts[#parts + 1] = pack('<I7I7', moment, total) end
      end
      value[limit.list] = table.concat(parts)
      if value[limit.list] == '' then value[first], value[first + 1], value[first + 2] = 0, 0, 0 end
      return
    end
    before = total
  end
end

local function undo_sliding_window(value, first, now, cost, limit, charged_at)
  limit.admits(value, first, now, 0, limit)
  local last = charged_at - charged_at % limit.x + limit.x - 1
  if value[first] - value[first] % limit.x + limit.x - 1 == last then
    if cost > value[first + 1] then cost = value[first + 1] end
    value[first + 1], value[first + 2] = value[first + 1] - cost, value[first + 2] - cost
    return
  end
  local list = value[limit.list]
  for i = 1, #list, 14 do
    local granule, units = unpack_('<I7I7', list, i)
    if granule == last then
      if cost > units then cost = units end
      local rest = units > cost and pack('<I7I7', last, units - cost) or ''
      value[limit.list], value[first + 2] = sub(list, 1, i - 1) .. rest .. sub(list, i + 14), value[first + 2] - cost
      return
    end
  end
end

local function undo_sliding_counter(value, first, now, cost, limit, charged_at)
  limit.admits(value, first, now, 0, limit)
  local windows = floor(value[first] / limit.period) - floor(charged_at / limit.period)
  if windows == 0 or windows == 1 then
    local slot = first + 2 - windows
    value[slot] = value[slot] > cost and value[slot] - cost or 0
  end
end

local function undo_bucket(value, first, now, cost, limit, charged_at)
  limit.admits(value, first, now, 0, limit)
  -- Without the charge the bucket might have been empty since then. The whole units that drain in that time may be those of
  -- the charge, and what is left may have come that much later, but not later than now. Up to 2^51 doubles round a quotient as
  -- it is rounded exactly.
  local parts = now > charged_at and (now - charged_at) * limit.x or 0
  if parts > 2251799813685248 then return end
  local gone = floor(parts / limit.period)
  local units = value[first + 1] - (cost > gone and cost - gone or 0)
  value[first + 1] = units > 0 and units or 0
  if value[first] < now then
    local since = value[first] + ceil((parts - gone * limit.period) / limit.x)
    if since >= now then
      since = now
      if limit.x > 1 then value[first + 2] = 0 end
    end
    value[first] = since
  end
end

local function undo_concurrency(value, first, now, cost, limit, charged_at)
  local list = value[limit.list]
  for i = #list - 20, 1, -21 do
    local expires, id, units = unpack_('<I7I7I7', list, i)
    if expires == charged_at + limit.period and id == 0 and expires > now then
      local taken = units < cost and units or cost
      local rest = units > taken and pack('<I7I7I7', expires, 0, units - taken) or ''
      value[limit.list], value[first + 1] = sub(list, 1, i - 1) .. rest .. sub(list, i + 21), value[first + 1] - taken
      return
    end
  end
end

-- By the number of the algorithm.
local undo = {
  undo_window, undo_calendar_window, undo_sliding_log, undo_sliding_window, undo_sliding_counter,
  undo_bucket, undo_bucket, undo_bucket, undo_concurrency,
}
