/** Records where the data of an exchange was sent: the calls listed in a proof of placement. Pure. */

import type { AttemptRecord, Exchange } from '../exchange/exchange.ts'
import { type PlacementWish, type ProofCall, SHARED_CREDENTIAL } from '../protocol/management/proof.ts'
import { DATA_REGIONS } from '../protocol/provider.ts'
import { retainsNothing, staysInRegion } from '../providers/credentials/catalog.ts'

/** The calls that were sent to a provider, including calls that failed or that another one overtook. */
export function callsOf({ id, attempts }: Pick<Exchange, 'id' | 'attempts'>): ProofCall[] {
  return attempts.filter(({ isStarted }) => isStarted).map(attempt => callOf(id, attempt))
}

function callOf(id: string, { endpoint, credential, status }: AttemptRecord): ProofCall {
  return {
    id,
    model: endpoint.modelId,
    provider: endpoint.provider.name,
    region: DATA_REGIONS.find(region => staysInRegion(region, endpoint, credential)) ?? null,
    zdr: retainsNothing(endpoint, credential),
    trains: endpoint.trains === true && credential?.declaredZdr !== true,
    credential: credential?.label ?? SHARED_CREDENTIAL,
    status,
  }
}

export function wishOf({ dataRegion, request }: Pick<Exchange, 'dataRegion' | 'request'>): PlacementWish {
  return {
    data_region: dataRegion,
    zdr: request.provider?.zdr === true,
    data_collection: request.provider?.data_collection === 'deny' ? 'deny' : 'allow',
  }
}
