/** Challenges for the relay in every format: cuts, changed frames and slow readers of one valid stream. */
import type { Test } from 'tap'
import { isExhaustive } from '../../support/share.ts'
import { type Outcome, type Relayed, sameAtAllDoors } from './relayed-play.ts'

/** Texts that are easily damaged: escapes, halves of a character, ends of lines. */
export const TEXTS = [
  'Hel',
  'lo ',
  '"wörld" \\ ',
  '\ud83d',
  '\ude00',
  '\u2028\n\t\u0001',
  '日本語',
  '</script>',
  ' end',
]

export const buffers = (frames: readonly string[]): Buffer[] => frames.map(one => Buffer.from(one))

/** A proper stream of a format. */
interface ProperStream {
  readonly format: Relayed
  readonly frames: readonly string[]
  /** All its text. */
  readonly text: string
  /** All that a client read as the text of the answer. */
  content(outcome: Outcome): string
  /** Of each of these, one frame is replaced. */
  readonly changes: Readonly<Record<string, (frame: string) => string>>
  /** Reads after which a slow reader makes no pause. */
  readonly readsWithoutPause: number
}

export function testProperStream(t: Test, stream: ProperStream): void {
  const { format, frames, content } = stream
  t.test('of a proper stream nearly all deltas are relayed, and each counts as one event', async t => {
    const cut = await sameAtAllDoors(t, 'cut at frames', buffers(frames), { format })
    const whole = await sameAtAllDoors(t, 'in one read', [Buffer.from(frames.join(''))], { format })
    for (const outcome of [cut, whole]) {
      t.equal(outcome.error, null)
      t.ok(outcome.sink.relayed > 25, `${outcome.sink.relayed} relayed`)
      t.equal(outcome.sink.number, outcome.sink.events - 1)
      t.equal(content(outcome), stream.text)
    }
  })

  t.test('a stream that ends at any byte ends the same', async t => {
    const bytes = Buffer.from(frames.join(''))
    let relayed = 0
    for (let end = 1; end <= bytes.length; end += isExhaustive ? 11 : 53) {
      relayed += (await sameAtAllDoors(t, `${end} bytes`, [bytes.subarray(0, end)], { format })).sink.relayed
    }
    t.ok(relayed > (isExhaustive ? 1000 : 200), `${relayed} relayed`)
  })

  for (const [name, change] of Object.entries(stream.changes)) {
    t.test(`a frame with ${name}: the stream reads the same, relayed and decoded`, async t => {
      let changed = 0
      let relayed = 0
      for (const [at, frame] of frames.entries()) {
        const other = change(frame)
        if (other === frame) continue
        changed++
        const chunks = buffers(frames.toSpliced(at, 1, other))
        const how = `${name}, frame ${at}`
        relayed += (await sameAtAllDoors(t, how, chunks, { format })).sink.relayed
        const inOne = await sameAtAllDoors(t, `${how}, one read`, [Buffer.concat(chunks)], { format })
        relayed += inOne.sink.relayed
      }
      const every = [Buffer.from(frames.map(change).join(''))]
      await sameAtAllDoors(t, `${name}, every frame`, every, { format })
      t.ok(changed > 3)
      t.ok(relayed > 0)
    })
  }

  t.test('a slow reader pauses the provider, whatever way a frame went', async t => {
    const outcome = await sameAtAllDoors(t, 'slow', buffers(frames), { format, slow: true })
    t.ok(outcome.sink.relayed > 25)
    const least = frames.length - stream.readsWithoutPause
    t.ok(outcome.paused >= least, `${outcome.paused} pauses in ${frames.length} reads`)
  })
}
