/**
 * Replies of providers to clients of all dialects, live and as requests of batches: all understand the same. A sample
 * of our own replies; `npm run parity -- --dialects .` plays all of them, and the recorded ones.
 */
import t from 'tap'
import { FORMATS, type Play, plays } from '../../bench/parity/cases.ts'
import { CHANNELS, casesIn, compareDialects, dialectCases } from '../../bench/parity/dialects.ts'
import { API_KEY, parityConfiguration } from '../../bench/parity/gateway.ts'
import { ReplayProvider } from '../../bench/parity/provider.ts'
import { startGatewayProcess } from '../support/gateway-process.ts'

/** Every so many replies of a format, so that the sample has some of each. */
const STEP = 17

function sample(): readonly Play[] {
  const goldens = plays().filter(({ source }) => source === 'golden')
  return FORMATS.flatMap(format =>
    goldens.filter(play => play.format === format).filter((_, at) => at % STEP === 0),
  )
}

t.test('clients of all dialects understand a reply alike, live and in batches', async t => {
  const chosen = dialectCases(sample())
  const cases = casesIn(chosen)
  const provider = new ReplayProvider(new Map(cases.map(one => [one.id, one.play])))
  const url = await provider.listen()
  t.teardown(() => provider.close())
  const configuration = parityConfiguration(`${url}/after/v1`, cases)
  const gateway = await startGatewayProcess(t, { ...configuration }, { GATEWAY_API_KEY: API_KEY })
  const to = { url: `${gateway.url}/v1`, guardedKey: '', stop: async () => undefined }
  const results = await compareDialects(chosen, to, () => undefined)
  t.ok(chosen.length > 15)
  for (const channel of CHANNELS) {
    for (const format of FORMATS) {
      const some = results.filter(one => one.channel === channel && one.case.play.format === format)
      t.ok(some.length > 1, `${channel}, ${format}: ${some.length}`)
    }
  }
  for (const { case: one, dialect, differences } of results)
    t.same(differences, [], `${one.label}, ${dialect}`)
})
