'use strict'

// The page sends the same clicks to both sides, and draws what the servers report in /events.
const sides = {
  without: { path: 'unguarded/payments' },
  with: { path: 'payments' },
}
const amount = 25
const $ = selector => document.querySelector(selector)
const sleep = ms => new Promise(resolve => setTimeout(resolve, ms))
const randomName = () => Array.from(crypto.getRandomValues(new Uint8Array(12)), b => b.toString(36).slice(-1)).join('')

let run = null // the current or last demonstration
let gone = false // the server has ended

// A run starts with empty sides.
function newRun() {
  const now = Date.now()
  return { name: randomName(), began: now, ended: 0, down: [], sides: { without: newSide(), with: newSide() } }
}
const newSide = () => ({ steps: [], clicks: {}, charges: 0, known: 0, replayed: 0, heard: {} })

// Events

const events = new EventSource('events')
events.onmessage = message => {
  const event = JSON.parse(message.data)
  if (!run) return
  if (event.step === 'crashed') {
    run.down.push({ from: event.at })
    note(event.at, 'The server crashed.', 'bad')
    say('The server crashed. It has taken the money but given no answer.')
  } else if (event.step === 'started') {
    const down = run.down.at(-1)
    if (down && !down.to) {
      down.to = event.at
      note(event.at, `A new server runs, as process ${event.detail}.`)
      say('A new server runs.')
    }
  } else if (event.run === run.name) {
    happened(event)
  }
}

// A crash ends the stream of events, and the listener stays open: a request waits for the next
// server. If none gets through, there is no listener any more.
events.onerror = async () => {
  for (let tries = 0; tries < 3; tries++) {
    try {
      await (await fetch('ledger')).arrayBuffer()
      return
    } catch {
      await sleep(300)
    }
  }
  if (gone) return
  gone = true
  events.close()
  if (run) run.ended ||= Date.now()
  buttons(true)
  say('The server has ended. Start it with “go run ./examples/payments”, and reload this page.')
}

// happened adds a step of a payment to its side.
function happened({ at, side: name, click: number, step, detail }) {
  const side = run.sides[name]
  const click = side.clicks[number]
  if (step === 'waiting') click.waiting = at
  if (step === 'locked') click.locked = at
  if (step === 'unlocked') click.unlocked = at
  if (step === 'running') click.running = at
  if (step === 'charged') side.charges++
  if (step === 'known') side.known++
  if (step === 'charged' || step === 'known') (click.charged ??= []).push({ at, step })
  if (step === 'answered') {
    click.ended = at
    click.replayed = detail.endsWith('replayed')
    click.status = detail.slice(0, 3)
    if (click.replayed) side.replayed++
    side.heard[number]?.()
  }
  const text = {
    arrived: '', unlocked: '', locked: '',
    waiting: `Click ${number} waits: the lock of this payment is held.`,
    running: `Click ${number}: the handler runs.`,
    charged: `The bank takes €${amount} (${detail}).`,
    known: `The bank knows this payment (${detail}) and takes nothing.`,
    answered: click.replayed ? `Click ${number} gets the first answer again: ${click.status}.` : `Click ${number} is answered: ${click.status}.`,
  }[step]
  if (text) note(at, text, step === 'charged' && side.charges > 1 ? 'bad' : step === 'known' || click.replayed ? 'good' : '', name)
}

// note adds a line to the steps of one side, or of both.
function note(at, text, kind, name) {
  for (const side of name ? [name] : Object.keys(sides)) run.sides[side].steps.push({ at, text, kind })
}

function say(text) { $('#status').textContent = text }

// Clicks

// pay sends one click and resolves when it is answered or its connection breaks.
async function pay(name, number, key, headers) {
  const side = run.sides[name]
  const click = side.clicks[number] ??= { sent: Date.now() }
  note(Date.now(), `Click ${number} on Pay.`, '', name)
  const heard = new Promise(resolve => { side.heard[number] = resolve })
  try {
    const response = await fetch(sides[name].path, {
      method: 'POST',
      headers: { 'Content-Type': 'application/json', 'Idempotency-Key': key, 'X-Account': 'anna', 'X-Run': run.name, 'X-Click': number, ...headers },
      body: JSON.stringify({ to: 'bert', amount }),
    })
    await response.arrayBuffer()
    await heard // so that the page has all steps before it says how it ended
    return response.status < 500 && !response.headers.has('Retry-After')
  } catch {
    click.lost = Date.now()
    note(click.lost, `Click ${number} gets no answer.`, 'bad', name)
    return false
  }
}

// payForSure repeats a click until it is answered, as clients do.
async function payForSure(name, number, key) {
  while (!await pay(name, number, key, {}) && !gone) await sleep(500)
}

const stories = {
  async crash(name, key) {
    if (await pay(name, '1', key, { 'X-Crash-After': '2' })) return // both sides have charged then
    await sleep(900)
    await payForSure(name, '2', key)
  },
  async double(name, key) {
    const first = payForSure(name, '1', key)
    await sleep(250)
    await payForSure(name, '2', key)
    await first
  },
}

async function tell(story) {
  if (gone || run && !run.ended) return
  run = newRun()
  run.story = story
  buttons(true)
  say(story === 'crash' ? 'You click Pay on both sides.' : 'You click Pay twice on both sides.')
  requestAnimationFrame(draw)
  const key = randomName() // a new payment has a new key; both clicks use the same
  await Promise.all(Object.keys(sides).map(name => stories[story](name, key)))
  if (gone) return
  run.ended = Date.now()
  draw() // so that the status never tells more than the page shows
  const [without, guarded] = ['without', 'with'].map(name => verdict(run.sides[name]).text)
  say(`Without reqlock: ${without.toLowerCase()}. With reqlock: ${guarded.toLowerCase()}.`)
  buttons(false)
}

function buttons(busy) {
  for (const button of document.querySelectorAll('button')) button.setAttribute('aria-disabled', busy)
}
for (const story of Object.keys(stories)) $(`#${story}`).onclick = () => tell(story)

// Drawing

// In one column, the steps are folded, so that both verdicts are in sight.
const narrow = matchMedia('(max-width: 53rem)')
function fold() {
  for (const steps of document.querySelectorAll('details')) steps.open = !narrow.matches
}
narrow.onchange = fold
fold()

const times = ['zero times', 'once', 'twice', 'three times', 'four times']

function verdict(side) {
  const text = `Charged ${times[side.charges] ?? side.charges + ' times'}`
  if (!run.ended) return { text: side.charges ? text : 'Paying …', kind: side.charges > 1 ? 'bad' : '' }
  return { text, kind: side.charges === 1 ? 'good' : 'bad' }
}

function reason(name) {
  const side = run.sides[name]
  if (!run.ended) return ''
  if (side.charges > 1) return `The server saw ${side.charges} payments: €${amount * side.charges} left the account for an order of €${amount}.`
  if (side.known) return 'The dead server’s lock expired, and the new one ran the payment again with the same key. The bank knew it.'
  if (side.replayed) return 'Click 2 waited for click 1, and got its answer. The handler ran once.'
  return ''
}

function element(kind, className, text) {
  const e = document.createElement(kind)
  e.className = className
  if (text) e.textContent = text
  return e
}

// draw repeats until the run has ended.
function draw() {
  const now = run.ended || Date.now()
  const span = Math.max(1500, (now - run.began) * 1.15)
  const at = time => `${Math.max(0, Math.min(100, (time - run.began) / span * 100))}%`
  const between = (from, to) => `left:${at(from)};width:calc(${at(to)} - ${at(from)})`
  for (const name of Object.keys(sides)) drawSide(name, now, at, between)
  if (!run.ended) requestAnimationFrame(draw)
}

function drawSide(name, now, at, between) {
  const section = $(`#${name}`)
  const side = run.sides[name]
  const { text, kind } = verdict(side)
  section.className = kind
  section.querySelector('.verdict .text').textContent = text
  section.querySelector('.mark').textContent = kind === 'good' ? '✓' : kind === 'bad' ? '!' : ''
  section.querySelector('.reason').textContent = reason(name)
  section.querySelector('.timeline').replaceChildren(...lanes(name, side, now, at, between))
  section.querySelector('ol').replaceChildren(...side.steps.toSorted((a, b) => a.at - b.at).map(step => {
    const item = element('li', step.kind)
    item.append(element('time', '', `${((step.at - run.began) / 1000).toFixed(2)} s`), element('span', '', step.text))
    return item
  }))
}

// lanes draws a timeline: a lane for each click, the lock, and the bank.
function lanes(name, side, now, at, between) {
  const lane = (label, ...parts) => {
    const track = element('div', 'track')
    track.append(...parts)
    const row = element('div', 'lane')
    row.append(element('span', '', label), track)
    return row
  }
  const bar = (className, from, to, text) => {
    const e = element('div', `bar ${className}`)
    if (text) e.append(element('span', '', text)) // hidden if there is no room
    e.style = between(from, to)
    return e
  }
  const point = (className, time, text) => {
    const e = element('div', `point ${className}`, text)
    e.style = `left:${at(time)}`
    return e
  }

  const clicks = Object.entries(side.clicks)
  const rows = ['1', '2'].map(number => {
    const click = side.clicks[number]
    if (!click) return lane(`Click ${number}`)
    const died = run.down.find(down => down.from >= click.sent)?.from
    const end = click.ended ?? click.lost ?? died ?? now
    const parts = []
    if (click.waiting) parts.push(bar('wait', click.waiting, click.locked ?? click.running ?? end, ''))
    if (click.running) parts.push(bar('run', click.running, Math.min(end, died ?? end), 'runs'))
    if (click.ended) parts.push(point('end good', end, click.replayed ? `${click.status} again` : click.status))
    else if (click.lost) parts.push(point('end bad', end, 'no answer'))
    return lane(`Click ${number}`, ...parts)
  })

  const locks = clicks.filter(([, click]) => click.locked).flatMap(([, click]) => {
    const died = run.down.find(down => down.from >= click.locked)?.from
    if (click.unlocked || !died) return [bar('lock', click.locked, click.unlocked ?? now, '')]
    const next = clicks.map(([, other]) => other.locked).find(locked => locked > died) ?? now
    return [bar('lock', click.locked, died, ''), bar('stale', died, next, 'held by a dead server')]
  })
  rows.push(name === 'with' ? lane('Lock', ...locks) : lane('No lock'))

  let taken = 0
  const charges = clicks.flatMap(([, click]) => click.charged ?? []).sort((a, b) => a.at - b.at).map(({ at, step }) =>
    step === 'known' ? point('good', at, '€0') : point(++taken > 1 ? 'bad' : '', at, `€${amount}`))
  rows.push(lane('Bank', ...charges))

  const over = element('div', 'over')
  for (const { from, to } of run?.down ?? []) {
    const band = element('div', 'down')
    band.append(element('b', '', 'server down'))
    band.style = between(from, to ?? now)
    over.append(band)
  }
  rows.push(over)
  return rows
}

// At rest, the lanes are empty, and nothing moves when the first bar appears.
for (const name of Object.keys(sides)) $(`#${name} .timeline`).replaceChildren(...lanes(name, newSide()))
