/** A gateway whose models belong to a parrot and to a provider that plays recorded replies, in every format. */
import type { Test } from 'tap'
import { startGateway, type TestGateway } from './gateway.ts'
import { type Parrot, parrotRows, startParrot, startReplayProvider } from './provider.ts'

interface DialectGateway {
  readonly gateway: TestGateway
  readonly parrot: Parrot
  readonly replay: Awaited<ReturnType<typeof startReplayProvider>>
}

export async function startDialectGateway(t: Pick<Test, 'teardown'>): Promise<DialectGateway> {
  const replay = await startReplayProvider()
  const parrot = await startParrot()
  const rows = parrotRows(parrot.url)
  const gateway = await startGateway({
    providers: [...replay.rows.providers, ...rows.providers],
    models: [...replay.rows.models, ...rows.models],
  })
  t.teardown(async () => {
    await gateway.close()
    replay.close()
    parrot.close()
  })
  return { gateway, parrot, replay }
}
