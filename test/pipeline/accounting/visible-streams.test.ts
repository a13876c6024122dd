/** When an endpoint has shown that all of its streams is seen while it comes. */
import t from 'tap'
import type { Usage } from '../../../src/formats/format.ts'
import { type ShownReply, VisibleStreams } from '../../../src/pipeline/accounting/visible-streams.ts'
import { scriptedEndpoint } from '../../support/scripted-attempt.ts'

const ENDPOINT = scriptedEndpoint('openai-chat')
const [ONE, TWO] = ['1'.repeat(64), '2'.repeat(64)]
const UNSAID = {}
const OFF = { reasoning: { effort: 'none' as const } }

const usageOf = (outputTokens: number, reasoningTokens = 0): Usage => ({
  inputTokens: 1,
  cachedTokens: 0,
  cacheWriteTokens: 0,
  outputTokens,
  reasoningTokens,
  webSearchRequests: 0,
})
/** A text of 100 tokens in pieces of ten. */
const GOOD: ShownReply = {
  usage: usageOf(100),
  isCut: false,
  isThoughtSeen: false,
  outputQuarters: 400,
  pieceQuarters: 40,
  wasPaused: false,
}

function show(streams: VisibleStreams, count: number, reply: Partial<ShownReply> = {}, key = ONE): void {
  for (let at = 0; at < count; at++) streams.note(ENDPOINT, UNSAID, key, { ...GOOD, ...reply })
}

t.test('twenty good replies are needed, from at least two keys', async t => {
  const streams = new VisibleStreams()
  t.equal(streams.isVisible(ENDPOINT, UNSAID), false, 'nothing is known')
  show(streams, 18)
  show(streams, 1, {}, TWO)
  t.equal(streams.isVisible(ENDPOINT, UNSAID), false)
  show(streams, 1)
  t.equal(streams.isVisible(ENDPOINT, UNSAID), true)
  t.equal(streams.isVisible(ENDPOINT, OFF), false, 'each effort is shown on its own')
  t.equal(streams.isVisible(scriptedEndpoint('openai-chat'), UNSAID), false, 'each endpoint too')
  show(streams, 19)
  t.equal(streams.isVisible(ENDPOINT, UNSAID), false, 'the last twenty are of one key')
  for (let at = 0; at < 100; at++)
    show(streams, 1, {}, `${at}`.padStart(64, '0').split('').reverse().join(''))
  t.equal(streams.isVisible(ENDPOINT, UNSAID), true, 'however many keys there are')
})

t.test('one reply to the contrary resets it', async t => {
  for (const [name, reply] of Object.entries({
    'hidden thinking': { usage: usageOf(101, 1) },
    'hidden thinking behind few words': { usage: usageOf(50, 40), outputQuarters: 4, pieceQuarters: 4 },
    'more tokens than anybody saw': { usage: usageOf(1_000) },
    'more than a quarter in one piece': { pieceQuarters: 101 },
  })) {
    const streams = new VisibleStreams()
    show(streams, 19)
    show(streams, 2, {}, TWO)
    t.equal(streams.isVisible(ENDPOINT, UNSAID), true)
    show(streams, 1, reply)
    t.equal(streams.isVisible(ENDPOINT, UNSAID), false, name)
    show(streams, 19)
    t.equal(streams.isVisible(ENDPOINT, UNSAID), false)
    show(streams, 1, {}, TWO)
    t.equal(streams.isVisible(ENDPOINT, UNSAID), true)
  }
})

t.test('replies that say nothing change nothing', async t => {
  for (const [name, reply] of Object.entries({
    'a short one': { outputQuarters: 100, pieceQuarters: 100, usage: usageOf(25) },
    'one without usage': { usage: null },
    'one that was cut': { isCut: true },
    'one whose reader was slow': { wasPaused: true, pieceQuarters: 400 },
  })) {
    const streams = new VisibleStreams()
    show(streams, 40, reply)
    show(streams, 40, reply, TWO)
    t.equal(streams.isVisible(ENDPOINT, UNSAID), false, name)
    show(streams, 19)
    show(streams, 1, {}, TWO)
    show(streams, 1, reply)
    t.equal(streams.isVisible(ENDPOINT, UNSAID), true, name)
  }
})

t.test('thinking that comes as text is seen', async t => {
  const streams = new VisibleStreams()
  const thought = { usage: usageOf(100, 60), isThoughtSeen: true }
  show(streams, 19, thought)
  show(streams, 1, thought, TWO)
  t.equal(streams.isVisible(ENDPOINT, UNSAID), true)
})

t.test('a row is believed until a reply shows otherwise', async t => {
  const streams = new VisibleStreams()
  const said = { ...ENDPOINT, thinks: false as const }
  t.equal(streams.isVisible(said, UNSAID), true)
  streams.note(said, UNSAID, ONE, GOOD)
  t.equal(streams.isVisible(said, UNSAID), true)
  streams.note(said, UNSAID, ONE, { ...GOOD, usage: usageOf(100, 50) })
  t.equal(streams.isVisible(said, UNSAID), false)
  for (let at = 0; at < 20; at++) streams.note(said, UNSAID, ONE, GOOD)
  t.equal(streams.isVisible(said, UNSAID), true, 'one key is enough where the row says it too')
})

t.test('one stream of a key at a time relies on what was shown, and any number on a row', async t => {
  const streams = new VisibleStreams()
  show(streams, 19)
  show(streams, 1, {}, TWO)
  const [first, second, other] = [streams.trustOf(ONE), streams.trustOf(ONE), streams.trustOf(TWO)]
  t.same(
    [first, first, second, other].map(trust => trust.isVisible(ENDPOINT, UNSAID)),
    [true, true, false, true],
  )
  const said = { ...scriptedEndpoint('openai-chat'), thinks: false as const }
  t.equal(second.isVisible(said, UNSAID), true, 'the operator says so')
  first.leave()
  first.leave()
  t.equal(first.isVisible(ENDPOINT, UNSAID), false, 'it is over')
  t.equal(second.isVisible(ENDPOINT, UNSAID), false, 'what it was told once holds to its end')
  second.leave()
  t.equal(streams.trustOf(ONE).isVisible(ENDPOINT, UNSAID), true)
})
