import fc from 'fast-check'
import t from 'tap'
import { FrameLog, SLICE_BYTES } from '../../../src/storage/transcripts/frame-log.ts'
import { search } from '../../support/property.ts'

const frameOf = (at: number, text: string): string =>
  `event: e\ndata: {"sequence_number":${at},"t":"${text}"}\n\n`

t.test(
  'from any number on, the frames are those that were added, however they came and are taken',
  async t => {
    const additions = fc.array(fc.array(fc.string({ maxLength: 3_000 }), { minLength: 1, maxLength: 8 }), {
      maxLength: 40,
    })
    fc.assert(
      fc.property(additions, fc.nat(400), fc.nat(3), (all, after, early) => {
        const log = new FrameLog()
        const place = log.positionAfter(after - 1)
        const frames: string[] = []
        let taken = ''
        let count = 0
        const take = (): void => {
          for (let part = log.read(place); part.count > 0; part = log.read(place)) {
            taken += Buffer.from(part.bytes).toString()
            count += part.count
          }
        }
        for (const [at, texts] of all.entries()) {
          const added = texts.map((text, of) =>
            frameOf(frames.length + of, JSON.stringify(text).slice(1, -1)),
          )
          log.add(Buffer.from(added.join('')), added.length)
          frames.push(...added)
          // Some readers are there while frames come.
          if (early > 0 && at % early === 0) take()
        }
        take()
        return taken === frames.slice(after).join('') && count === Math.max(0, frames.length - after)
      }),
      search(),
    )
    t.pass()
  },
)

t.test('a long frame comes in slices, and counts with its last one', async t => {
  const log = new FrameLog()
  const frames = [frameOf(0, 'short'), frameOf(1, 'x'.repeat(150_000)), frameOf(2, 'y'.repeat(70_000))]
  log.add(Buffer.from(frames[0] ?? ''), 1)
  log.add(Buffer.from(frames.slice(1).join('')), 2)
  const place = log.positionAfter(-1)
  const parts = Array.from({ length: 6 }, () => log.read(place))
  t.same(
    parts.map(({ count, endsFrame }) => [count, endsFrame]),
    [
      [1, true],
      [0, false],
      [0, false],
      [0, false],
      [2, true],
      [0, true],
    ],
  )
  t.ok(parts.every(({ bytes }) => bytes.length <= SLICE_BYTES))
  t.equal(Buffer.concat(parts.map(({ bytes }) => bytes)).toString(), frames.join(''))
})

t.test('its memory is counted, and let go of', async t => {
  const log = new FrameLog()
  t.equal(log.heldBytes, 0)
  const frame = Buffer.from(frameOf(0, 'x'.repeat(100_000)))
  log.add(frame, 1)
  t.ok(log.heldBytes >= frame.length && log.heldBytes < frame.length + 1_000)
  for (let n = 0; n < 1_000; n++) log.add(Buffer.from(frameOf(n, 'short')), 1)
  t.ok(log.heldBytes < frame.length + 1_000 * 60 + 20_000, 'chunks are full')
  log.clear()
  t.equal(log.heldBytes, 0)
  t.equal(log.next, 1_001, 'numbers stay used')
})
