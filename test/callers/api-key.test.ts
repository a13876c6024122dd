import { createHash } from 'node:crypto'
import t from 'tap'
import { scrub } from '../../src/base/scrub.ts'
import { callerRequestId } from '../../src/base/telemetry/caller-names.ts'
import {
  createKey,
  generateKey,
  hashKey,
  isGuessable,
  keyKind,
  keyRecord,
} from '../../src/callers/api-key.ts'
import { gatewayKeysIn } from '../../src/features/captures/secrets.ts'
import { compileRules, redact } from '../../src/features/guardrails/rules.ts'
import { keptName } from '../../src/pipeline/accounting/client-fields.ts'
import { rulesOf } from '../support/guardrail-texts.ts'
import { TestClock } from '../support/test-clock.ts'

const HEX = '0123456789abcdef'.repeat(4)

t.test('generated keys have the documented form and never repeat', async t => {
  t.match(generateKey('inference'), /^sk-gw-v1-[0-9a-f]{64}$/)
  t.match(generateKey('management'), /^sk-gw-mgmt-[0-9a-f]{64}$/)
  t.equal(new Set(Array.from({ length: 1000 }, () => generateKey('inference'))).size, 1000)
})

t.test('a key is found by all that keep keys out of what they write', async t => {
  const detector = compileRules(rulesOf(['secrets'], 'redact', false))
  for (const kind of ['inference', 'management'] as const) {
    const key = generateKey(kind)
    const text = `My key is ${key}.`
    t.same(gatewayKeysIn(text), [key], `${kind}: captures`)
    t.equal(redact(text, detector.scan(text, 'user')), 'My key is [SECRET].')
    t.notMatch(scrub(text, []), key, `${kind}: texts of providers`)
    t.equal(callerRequestId(key), undefined, `${kind}: ids of requests`)
    t.equal(keptName(key), undefined, `${kind}: names in usage records`)
  }
})

t.test('only the exact form is a key', async t => {
  t.equal(keyKind(`sk-gw-v1-${HEX}`), 'inference')
  t.equal(keyKind(`sk-gw-mgmt-${HEX}`), 'management')
  const others = ['', 'sk-gw-v1-', HEX, `sk-gw-v2-${HEX}`, `sk-gw-v1-${HEX}0`, `sk-gw-v1-${HEX.slice(1)}`]
  const odd = [`sk-gw-v1-${HEX.toUpperCase()}`, `sk-gw-v1-${HEX}\n`, ` sk-gw-v1-${HEX}`, `SK-GW-V1-${HEX}`]
  for (const text of [...others, ...odd]) t.equal(keyKind(text), null, JSON.stringify(text))
})

t.test('the record holds hash and label, never the key', async t => {
  const key = `sk-gw-mgmt-${HEX}`
  const record = keyRecord(key, 'management', { name: 'n', clock: new TestClock(Date.UTC(2026, 0, 2)) })
  t.same(record, {
    hash: createHash('sha256').update(key).digest('hex'),
    kind: 'management',
    name: 'n',
    label: 'sk-gw-mgmt-012...def',
    organizationId: 'org_default',
    workspaceId: 'ws_default',
    disabled: false,
    expiresAt: null,
    limit: null,
    limitReset: null,
    includeByokInLimit: false,
    creatorUserId: null,
    secretExpiresAt: null,
    role: null,
    traceTrusted: false,
    rateLimit: null,
    loops: null,
    cache: null,
    rates: null,
    loopPolicy: null,
    caching: null,
    rotatedAt: null,
    identity: null,
    createdAt: '2026-01-02T00:00:00.000Z',
    updatedAt: '2026-01-02T00:00:00.000Z',
  })
  const made = createKey({
    kind: 'inference',
    name: 'x',
    clock: new TestClock(),
    expiresAt: '2027-01-01T00:00:00.000Z',
  })
  t.equal(hashKey(made.key), made.record.hash)
  t.equal(made.record.expiresAt, '2027-01-01T00:00:00.000Z')
  t.notMatch(JSON.stringify(made.record), made.key.slice(-20))
})

t.test('a key can be guessed that has few characters, or one part again and again', async t => {
  const random = '7c0f1e9a3b5d2846e1f0a9c8b7d6352419f8e0d1c2b3a4655647382910fedcba'
  const isWeak = (secret: string) => isGuessable(`sk-gw-v1-${secret}`)
  t.equal(isWeak(random), false)
  t.equal(isWeak(HEX), true, 'sixteen characters, four times')
  t.equal(isWeak(random.slice(0, 32).repeat(2)), true)
  t.equal(isWeak('0123456'.repeat(10).slice(0, 64)), true, 'seven characters')
})
