/** What a replay writes stays in its own folder. */
import t from 'tap'
import { ownSettings } from '../../../../src/apps/commands/replay/replay-gateway.ts'
import { loadConfig } from '../../../../src/process/config/config.ts'

t.test('no place of the operator is left in the settings of a replay', async t => {
  const config = loadConfig([], {
    GATEWAY_MANAGEMENT_KEY: `sk-gw-mgmt-${'0123456789abcdef'.repeat(4)}`,
    REDIS_URL: 'redis://127.0.0.1:6379',
  })
  const { storage, tools, redis, proof, capture, managementKey, listen } = ownSettings(
    config,
    'sqlite:/replay/gateway.db',
    '/replay',
  )
  t.equal(storage.url, 'sqlite:/replay/gateway.db')
  t.equal(tools.files.url, 'file:/replay/files')
  t.equal(tools.files.maxFileBytes, config.tools.files.maxFileBytes)
  t.equal(redis.url, null)
  t.equal(proof.keyFile, '/replay/proof.key')
  t.equal(capture.enabled, false)
  t.equal(managementKey, null)
  t.match(listen, { host: '127.0.0.1', port: 0, tls: null })
})
