/** The features that a gateway offers are the rows of its tables. */
import { createSecretKey, randomBytes } from 'node:crypto'
import t from 'tap'
import { createLog } from '../../../src/base/log/log.ts'
import { loadConfig } from '../../../src/process/config/config.ts'
import { buildGateway } from '../../../src/process/wiring/gateway.ts'
import { parseVaultKeys } from '../../../src/providers/credentials/vault-keys.ts'
import { OFFERED } from '../../support/dialects.ts'
import { tempFolder } from '../../support/temp-folder.ts'

t.test('a gateway offers its plugins and server tools, which are those of unit tests', async t => {
  const built = await buildGateway({
    config: {
      ...loadConfig([], {}),
      storage: { url: 'sqlite::memory:' },
      threads: { serve: 1, warmUpMs: 0, tasks: 1 },
    },
    simUrl: 'http://127.0.0.1:9',
    endUserKey: createSecretKey(randomBytes(32)),
    vaultKeys: parseVaultKeys(`test:${randomBytes(32).toString('base64')}`),
    log: createLog('error', { write: () => undefined }),
    spoolFolder: tempFolder('sluice-offered'),
  })
  t.teardown(() => built.close())
  const { routers, ...offered } = built.offered
  const { routers: _, ...expected } = OFFERED
  t.same(offered, expected)
  for (const router of ['auto', 'free', 'fusion', 'nvidia/switchyard']) t.ok(routers.has(router), router)
  t.ok(built.offered.plugins.has('moderation'))
  t.ok(built.offered.tools.has('datetime'))
})
