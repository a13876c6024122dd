/** Pieces of a stream for a slow reader: what waits counts until the library has sent it. */
import t from 'tap'
import { PieceQueue } from '../../src/server/uws/piece-queue.ts'

const PIECE_BYTES = 16_384

/** A library that sends this many pieces, and keeps the next one until there is room. */
function library(room: number) {
  const written: number[] = []
  return {
    written,
    write(piece: Buffer): boolean {
      written.push(piece.length)
      return written.length <= room
    },
  }
}

t.test('a piece that the library could not send counts, also if nothing waits behind it', async t => {
  const queue = new PieceQueue()
  t.equal(queue.write(library(1), Buffer.alloc(2 * PIECE_BYTES)), false)
  t.equal(queue.waitingBytes, PIECE_BYTES, 'the last piece')
  const behind = new PieceQueue()
  t.equal(behind.write(library(0), Buffer.alloc(2 * PIECE_BYTES + 5)), false)
  t.equal(behind.waitingBytes, 2 * PIECE_BYTES + 5, 'all of it')
})

t.test('nothing counts once the library has room again', async t => {
  const queue = new PieceQueue()
  queue.write(library(0), Buffer.alloc(PIECE_BYTES))
  const roomy = library(9)
  t.equal(queue.write(roomy, ''), true)
  t.same(roomy.written, [], 'the library has all of it')
  t.equal(queue.waitingBytes, 0)
})
