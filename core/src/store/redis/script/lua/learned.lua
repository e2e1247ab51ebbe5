-- What the other side of a key has said of its limits: docs/adr/0041. algorithm/learned.rs has the same rules.
-- Few keys have it, so its functions are made by the first entry that needs them.
local learned_rules
learned_of = function()
  if learned_rules then return learned_rules end
  local function read(content)
    local calls, calls_until, wait_until = unpack_('<I7I7I7', content)
    require_at_most(MAX, calls)
    require_at_most(LATEST_DRAIN, calls_until, wait_until)
    local learned, at = { calls = calls, calls_until = calls_until, wait_until = wait_until, windows = {} }, 22
    while at <= #content do
      local window, marks, steps = { steps = {} }, nil, nil
      window.id, marks, window.limit, window.length, window.asks_until, window.ends, steps, at = unpack_('<I7BI7I7I7I7B', content, at)
      window.place, window.stated = marks % 16, floor(marks / 16) % 2 == 1
      window.assumed, window.beside, window.counted = floor(marks / 32) % 2 == 1, floor(marks / 64) % 2 == 1, marks > 127
      require_at_most(MAX, window.id, window.limit)
      require_at_most(LATEST_DRAIN, window.asks_until, window.ends)
      require_at_most(LONGEST, window.length)
      if #learned.windows >= MOST_LEARNED_WINDOWS or steps > MOST_LEARNED_STEPS or window.length < 1 then error('learned') end
      for i = 1, steps do
        local used, closes
        used, closes, at = unpack_('<I7I7', content, at)
        require_at_most(MAX, used)
        require_at_most(LATEST_DRAIN, closes)
        window.steps[i] = { used = used, closes = closes }
      end
      learned.windows[#learned.windows + 1] = window
    end
    return learned
  end

  local function write(learned)
    local parts = { pack('<I7I7I7', learned.calls, learned.calls_until, learned.wait_until) }
    for _, window in ipairs(learned.windows) do
      local marks = window.place + (window.stated and 16 or 0) + (window.assumed and 32 or 0) + (window.beside and 64 or 0) + (window.counted and 128 or 0)
      parts[#parts + 1] =
        pack('<I7BI7I7I7I7B', window.id, marks, window.limit, window.length, window.asks_until, window.ends, #window.steps)
      for _, step in ipairs(window.steps) do parts[#parts + 1] = pack('<I7I7', step.used, step.closes) end
    end
    return table.concat(parts)
  end

  -- From this moment on nothing is known.
  local function ends(learned)
    local ends = max(learned.calls_until, learned.wait_until)
    for _, window in ipairs(learned.windows) do ends = max(ends, window.ends) end
    return ends
  end

  local function drop_passed(window, moment)
    local live = {}
    for _, step in ipairs(window.steps) do
      if step.closes > moment then live[#live + 1] = step end
    end
    window.steps = live
  end

  local function is_over(window)
    local last = window.steps[#window.steps]
    return window.ends <= now or not window.stated and not (last and last.closes > now)
  end

  -- The windows that are not over; `alone`: of these the ones that no limit of the policy is beside.
  local function live_windows(learned, alone)
    local live = {}
    for _, window in ipairs(learned.windows) do
      if not is_over(window) and not (alone and window.beside) then live[#live + 1] = window end
    end
    return live
  end

  -- The units of a call that a window counts; nil of units that the policy does not count.
  local function units_of(window, instruction, cost)
    local limit = instruction.limits[window.place]
    return limit and (limit.units or cost)
  end

  local function used_of(window)
    local used = 0
    for _, step in ipairs(window.steps) do
      if step.closes > now then used = max(used, step.used) end
    end
    return used
  end

  -- The limits that refuse a call, by their places. More units than a limit has are admitted when nothing is used.
  local function refusing(learned, instruction, cost)
    local places = {}
    for _, window in ipairs(live_windows(learned, 'alone')) do
      local units = units_of(window, instruction, cost) or 1
      local refuses = window.asks_until > now
      if window.counted then
        refuses = refuses and used_of(window) >= window.limit
      else
        for _, step in ipairs(window.steps) do
          refuses = refuses or step.closes > now and step.used + units > window.limit
        end
      end
      if units > 0 and refuses then places[max(window.place, 1)] = true end
    end
    return places
  end

  -- The units that all windows have left, at most so many.
  local function left(learned, most)
    for _, window in ipairs(live_windows(learned, 'alone')) do
      if window.place > 0 then most = min(most, max(window.limit - used_of(window), 0)) end
    end
    return most
  end

  -- What was learned of a key, or nothing yet.
  local function learned_in(value)
    value.learned = value.learned or { calls = 0, calls_until = 0, wait_until = 0, windows = {} }
    return value.learned
  end

  -- Charges a call as of a moment. Calls that nothing but this limits let one of them begin a window of which nothing was said.
  local function charge(value, instruction, cost, moment)
    local learned = learned_in(value)
    learned.calls = min(learned.calls + 1, MAX)
    if instruction.learns then learned.calls_until = now + CALLS_IN_FLIGHT end
    learned.windows = live_windows(learned)
    for _, window in ipairs(live_windows(learned, 'alone')) do
      local last = window.steps[#window.steps]
      drop_passed(window, moment)
      if #window.steps == 0 then
        local gone = last and last.closes < moment and moment - last.closes or 0
        window.steps[1] = { used = 0, closes = moment - gone % window.length + window.length }
        window.assumed = true
        if instruction.asks and not window.counted then window.asks_until = moment + ANSWER_OF_LEARNED end
      end
      local units, used = window.counted and 1 or units_of(window, instruction, cost) or 0, 0
      for _, step in ipairs(window.steps) do
        step.used = min(step.used + units, MAX)
        used = max(used, step.used)
      end
      if window.counted and used >= window.limit then window.asks_until = moment + ANSWER_OF_LEARNED end
    end
  end

  -- Another version of the policy counts: until it is said anew, nothing is known of its limits.
  local function forget_places(learned)
    local kept = {}
    for _, window in ipairs(learned.windows) do
      window.place = 0
      if not window.beside then kept[#kept + 1] = window end
    end
    learned.windows = kept
  end

  -- What a call leaves free of each limit of the policy: what others use, and what the other side's limit has less. Where a call takes more
  -- than that limit has, it is admitted when nothing is used.
  local function reserve(learned, instruction)
    for _, limit in ipairs(instruction.limits) do limit.learned = 0 end
    for _, window in ipairs(learned and live_windows(learned) or {}) do
      local limit = window.beside and instruction.limits[window.place]
      if limit then
        local units = limit.units or instruction.asked
        local less = min(max(limit.count - window.limit, 0), max(limit.count - units, 0))
        limit.learned = max(limit.learned, less + used_of(window))
      end
    end
  end

  -- Adds a step, or raises the one of that end to `most`.
  local function raise(window, used, closes, most)
    local at, same = #window.steps + 1, nil
    for i, step in ipairs(window.steps) do
      local apart = step.closes - closes
      if apart < SAME_LEARNED_STEP and -apart < SAME_LEARNED_STEP then
        same = same or step
      elseif apart > 0 then
        at = min(at, i)
      end
    end
    if same then
      same.used = max(same.used, most)
    else
      table.insert(window.steps, at, { used = min(used, MAX), closes = closes })
    end
    -- A step that a later one covers says nothing.
    local kept, highest = {}, -1
    for i = #window.steps, 1, -1 do
      local step = window.steps[i]
      if step.used > highest then
        table.insert(kept, 1, step)
        highest = step.used
      end
    end
    if #kept > MOST_LEARNED_STEPS then
      kept[2].used = kept[1].used
      table.remove(kept, 1)
    end
    window.steps = kept
  end

  -- What a response said of a limit of the policy: what our own calls do not explain is used by others.
  -- A limit that is raised leaves no more than before until the last end that was said.
  local function observe_beside(window, said, calls, closes, last_end, limit, value)
    local before = window.stated and min(window.limit, said.capacity) or said.capacity
    local raised = said.stated and max(min(said.limit, said.capacity) - before, 0) or 0
    if said.stated or not window.stated then window.limit, window.stated = said.limit, said.stated end
    window.length = max(said.length, 1)
    local others, own = used_of(window), 0
    if limit then
      -- A look at a bucket does not start it.
      local copy = {}
      for slot, field in pairs(value) do copy[slot] = field end
      limit:advance(copy)
      own = limit:used(copy)
    end
    local known = said.known >= 0 and said.known + (calls or 0) * said.units or 0
    local news, last = max(said.used - max(known, own + others), 0), max(last_end, closes)
    if raised > 0 then
      local used = raised
      for _, step in ipairs(window.steps) do
        if step.closes > last then used = max(used, step.used + raised) end
        step.used = min(step.used + raised, MAX)
      end
      raise(window, used, last, used)
    end
    if news > 0 then
      local used = min(others + news + raised, MAX)
      raise(window, used, closes, used)
    end
  end

  local function take_limit(window, said)
    if said.stated or not window.stated then
      -- A limit that is raised leaves no more than before: what is said never adds.
      local raised = max(said.limit - window.limit, 0)
      for _, step in ipairs(window.steps) do step.used = min(step.used + raised, MAX) end
      window.limit, window.stated = said.limit, said.stated
    end
  end

  -- Takes what is left where no end was said: that holds for a second. When all of it is used, and the newest call has its answer, the
  -- next one asks.
  local function observe_left(window, said, calls)
    local asked = window.asks_until > now
    -- The newest call is the one that asks.
    if asked and calls and calls > 0 then return end
    window.place, window.asks_until, window.ends = said.place, 0, max(window.ends, now + LEARNED_IS_REMEMBERED)
    drop_passed(window, now)
    take_limit(window, said)
    window.length = said.length > 0 and said.length or max(window.length, 1)
    local used = calls and said.used + calls * said.units or max(said.used, used_of(window))
    local step = window.steps[#window.steps]
    -- What was said with an end stands.
    if step and not window.assumed then return end
    if step and not asked then
      step.used = max(step.used, said.used)
    else
      window.assumed, window.steps = true, { { used = min(used, MAX), closes = now + ANSWER_OF_LEARNED } }
    end
    if calls == 0 and used_of(window) >= window.limit then window.steps = {} end
  end

  -- Takes what a response said of one limit. `calls` were charged since the call that was answered; nil where that is not known.
  local function observe_window(window, said, calls, instruction, value)
    if said.reset == 0 then return observe_left(window, said, calls) end
    local closes = now + said.reset
    local last_end = window.ends - LEARNED_IS_REMEMBERED
    window.place, window.asks_until, window.ends = said.place, 0, max(window.ends, closes + LEARNED_IS_REMEMBERED)
    drop_passed(window, now)
    local beside = said.capacity > 0
    if beside ~= window.beside then window.beside, window.assumed, window.steps = beside, false, {} end
    if beside then return observe_beside(window, said, calls, closes, last_end, instruction.limits[said.place], value) end
    take_limit(window, said)
    local used = said.used + (calls or 0) * said.units
    if window.assumed then
      window.assumed, window.length = false, 0
      if instruction.asks then
        if not calls then used = max(used, used_of(window)) end
        window.steps = {}
      end
    end
    window.length = said.length > 0 and said.length or max(window.length, said.reset)
    raise(window, used, closes, said.used)
  end

  -- The other side refuses a call of a window that counts, behind which `calls` were charged.
  local function refused(window, calls, closes)
    local step
    for _, other in ipairs(window.steps) do
      if other.closes > now then step = step or other end
    end
    -- It may be a call of the window before.
    if not step or calls >= step.used then return end
    local served = max(step.used - calls - 1, 1)
    if window.assumed then
      local length = min(max(closes - max(step.closes - window.length, 0), 1), LEARNED_IS_REMEMBERED)
      -- Services round to seconds.
      local apart = length - window.length
      if apart < SAME_LEARNED_STEP and -apart < SAME_LEARNED_STEP then length = max(length, window.length) end
      window.length, window.limit, window.assumed, step.closes = length, served, false, closes
    else
      window.limit, step.closes = min(window.limit, served), max(step.closes, closes)
    end
    window.asks_until, window.ends = 0, max(window.ends, closes + LEARNED_IS_REMEMBERED)
  end

  -- Takes a response that states no limit: a refusal that tells to wait ends a window, and any other one lets the next call go.
  local function observe_counted(learned, wait, calls)
    for _, window in ipairs(learned.windows) do
      if window.counted then
        if wait > 0 then return refused(window, calls or 0, now + wait) end
        -- The newest call is the one that asks. Those before it that go freely may still be on their way there.
        if calls == 0 then window.asks_until = used_of(window) == window.limit and now + LOOK_AT_LEARNED_AGAIN or 0 end
        return
      end
    end
    if wait > 0 and #learned.windows == 0 then
      local served, closes = max(learned.calls - (calls or 0) - 1, 1), now + wait
      learned.windows[1] = {
        id = 0, place = 1, stated = true, assumed = false, beside = false, counted = true, limit = served, length = LEARNED_IS_REMEMBERED,
        asks_until = 0, ends = closes + LEARNED_IS_REMEMBERED, steps = { { used = served, closes = closes } },
      }
    end
  end

  -- Takes what a response said: the trailer has '<d', the calls that were known (-1: they are not), and '<dddddddddd' for each limit.
  local function observe(instruction, value)
    local learned = learned_in(value)
    local known, at = unpack_('<d', instruction.text, instruction.meta)
    local calls = known >= 0 and max(learned.calls - known, 0) or nil
    if instruction.block > 0 then learned.wait_until = max(learned.wait_until, now + instruction.block) end
    learned.windows = live_windows(learned)
    local limits = {}
    while at <= #instruction.text do
      local said, stated = {}, nil
      said.id, said.place, stated, said.limit, said.used, said.reset, said.length, said.units, said.capacity, said.known, at =
        unpack_('<dddddddddd', instruction.text, at)
      said.stated = stated > 0
      -- What is left, without an end, says something of windows that are known, and nothing of others.
      local counts = said.reset > 0
      for _, window in ipairs(learned.windows) do counts = counts or window.id == said.id end
      if counts then limits[#limits + 1] = said end
    end
    if #limits > 0 then
      local kept = {}
      for _, window in ipairs(learned.windows) do
        if not window.counted then kept[#kept + 1] = window end
      end
      learned.windows = kept
    elseif instruction.asks then
      observe_counted(learned, instruction.block, calls)
    end
    for _, said in ipairs(limits) do
      local window
      for _, other in ipairs(learned.windows) do
        if other.id == said.id then window = other end
      end
      if not window then
        window = { id = said.id, place = 0, stated = false, assumed = false, beside = false, limit = 0, length = 0, asks_until = 0, ends = 0, steps = {} }
        if #learned.windows >= MOST_LEARNED_WINDOWS then table.remove(learned.windows, 1) end
        learned.windows[#learned.windows + 1] = window
      end
      observe_window(window, said, calls, instruction, value)
    end
  end

  learned_rules = { read = read, write = write, ends = ends, refusing = refusing, left = left, charge = charge, reserve = reserve, forget_places = forget_places, observe = observe }
  return learned_rules
end
