/** GET /models, GET /models/{author}/{slug}/endpoints and GET /providers: what can be asked for. */
import { GatewayError } from '../errors.ts'
import type { Handler } from './handler.ts'

/** The catalogue as clients see it: finished documents, ready to become JSON. */
export interface Listing {
  models(query: URLSearchParams): object | Promise<object>
  /** The endpoints of the model `author/slug`; null when there is no such model. */
  endpoints(id: string): object | null | Promise<object | null>
  providers(): object | Promise<object>
}

export function listModels(listing: Listing): Handler {
  return async (request, reply) => reply.json(200, await listing.models(request.query))
}

export function listEndpoints(listing: Listing): Handler {
  return async (request, reply) => {
    const document = await listing.endpoints(`${request.params.get('author')}/${request.params.get('slug')}`)
    if (document === null) throw new GatewayError('not_found', 'Model not found')
    reply.json(200, document)
  }
}

export function listProviders(listing: Listing): Handler {
  return async (_request, reply) => reply.json(200, await listing.providers())
}
