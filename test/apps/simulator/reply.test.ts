import fc from 'fast-check'
import t from 'tap'
import {
  limitReply,
  piecesOf,
  tallyOf,
  textReply,
  wholeText,
  writtenPieces,
} from '../../../src/apps/simulator/reply.ts'
import { search } from '../../support/property.ts'

t.test('pieces join to the text and split no character', async t => {
  fc.assert(
    fc.property(fc.string({ unit: 'binary', maxLength: 300 }), text => {
      const pieces = piecesOf(text)
      const list = [...pieces.each()]
      return (
        list.join('') === text && list.length === pieces.tokens && list.every(piece => piece.isWellFormed())
      )
    }),
    search(),
  )
  t.same([...piecesOf('  a bc\n d').each()], ['  ', 'a ', 'bc\n ', 'd'])
  t.ok(piecesOf('世'.repeat(100)).tokens > 3, 'a text without spaces has pieces too')
})

t.test('a written text has exactly its tokens, each time it is asked for', async t => {
  const pieces = writtenPieces(50)
  t.equal([...pieces.each()].length, 50)
  t.equal(wholeText(pieces), wholeText(pieces))
  t.equal(wholeText(pieces).split(' ').length, 50)
})

t.test('a limit cuts text and keeps calls whole', async t => {
  const text = textReply('one two three four')
  t.equal(limitReply(text, null), text)
  t.equal(limitReply(text, 4), text)
  const cut = limitReply(text, 2)
  t.equal(cut.finish, 'length')
  t.equal(cut.parts.map(part => wholeText(part.pieces)).join(''), 'one two ')
  const call = {
    parts: [{ kind: 'call', name: 'f', custom: false, pieces: piecesOf('{"a": 1, "b": 2}') }],
    finish: 'calls',
    paceMs: 0,
  } as const
  t.same(limitReply(call, 2).parts, [])
  t.same(tallyOf(limitReply(text, 3), 7), { input: 7, output: 3, reasoning: 0 })
})
