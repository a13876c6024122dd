/** The canonical form that digests are made of, and where a proof stands in a reply. */
import t from 'tap'
import {
  canonicalJson,
  digestLine,
  proofPosition,
  replyDigest,
} from '../../../src/protocol/management/proof.ts'

t.test('canonical JSON is that of RFC 8785', t => {
  // The example of its section 3.2.3, with the members that sort by UTF-16.
  const value = JSON.parse(
    '{"\\u20ac":"Euro Sign","\\r":"Carriage Return","\\ufb33":"Hebrew Letter Dalet With Dagesh","1":"One","\\ud83d\\ude00":"Emoji: Grinning Face","\\u0080":"Control","\\u00f6":"Latin Small Letter O With Diaeresis"}',
  )
  t.equal(
    canonicalJson(value),
    '{"\\r":"Carriage Return","1":"One","\u0080":"Control","ö":"Latin Small Letter O With Diaeresis","€":"Euro Sign","😀":"Emoji: Grinning Face","\ufb33":"Hebrew Letter Dalet With Dagesh"}',
  )
  t.equal(
    canonicalJson(JSON.parse('[333333333.33333329,1E30,4.50,2e-3,0.000000000000000000000000001,-0]')),
    '[333333333.3333333,1e+30,4.5,0.002,1e-27,0]',
  )
  t.equal(canonicalJson({ b: [true, null, undefined], a: undefined, c: {} }), '{"b":[true,null,null],"c":{}}')
  t.equal(canonicalJson(JSON.parse('{"__proto__":1,"a":{"z":1,"b":2}}')), '{"__proto__":1,"a":{"b":2,"z":1}}')
  t.end()
})

t.test('a digest is the same with and without the proof, and for any order of members', t => {
  const bare = { id: 'a', gateway_metadata: { region: 'x' } }
  const signed = proofPosition(bare)?.withProof('p') as typeof bare
  t.match(signed, { gateway_metadata: { proof: 'p' } })
  t.equal(replyDigest(signed), replyDigest(bare))
  t.equal(replyDigest({ gateway_metadata: { region: 'x' }, id: 'a' }), replyDigest(bare))
  t.not(replyDigest({ ...bare, gateway_metadata: { region: 'y' } }), replyDigest(bare))
  t.end()
})

t.test('the place of a proof is the reply, or the response of an event', t => {
  const event = { type: 'response.completed', response: { id: 'a', gateway_metadata: {} } }
  t.same(proofPosition(event)?.withProof('p'), {
    ...event,
    response: { id: 'a', gateway_metadata: { proof: 'p' } },
  })
  t.same(proofPosition(event)?.reply, event.response)
  for (const none of [
    null,
    1,
    'a',
    [],
    {},
    { response: null },
    { gateway_metadata: null },
    { response: { id: 1 } },
  ])
    t.equal(proofPosition(none), null, JSON.stringify(none))
  t.equal(digestLine({ b: 1, a: 2 }), '{"a":2,"b":1}\n')
  t.end()
})
