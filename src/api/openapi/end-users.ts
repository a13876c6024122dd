/** The interface description of end users. Pure. */
import { END_USER } from '../../protocol/management/management.ts'
import {
  flag,
  listOf,
  oneRecord,
  PAGE_PARAMETERS,
  query,
  tagged,
  text,
  type UntaggedDescription,
} from './description.ts'

const { creation, update, answer } = END_USER
const USER = END_USER.toExample({
  user: 'customer/42',
  created_at: '2026-07-16T12:00:00.000Z',
  updated_at: '2026-07-16T12:00:00.000Z',
})

const change: Omit<UntaggedDescription, 'parameters'> = {
  body: {
    schema: update,
    examples: {
      activate: { is_active: true },
      weigh: { weight: 3 },
      limit: { rate_limit: { requests_per_minute: 20 } },
    },
  },
  answers: { 200: oneRecord(answer, 'The changed end user.', USER) },
}
const deactivation: Omit<UntaggedDescription, 'parameters'> = {
  text: 'The record stays, so that its usage can still be identified.',
  answers: { 200: oneRecord(answer, 'The inactive end user.', { ...USER, is_active: false }) },
}
const userParameter = [query('user', text, 'The tracking string, if it cannot be part of a path.', true)]

export const END_USERS = tagged('End users', {
  createEndUser: {
    body: {
      schema: creation,
      examples: { user: { user: 'customer/42' }, weighted: { user: 'customer/43', weight: 3 } },
    },
    answers: { 201: oneRecord(answer, 'The new end user.', USER) },
    failures: ['conflict'],
  },
  listEndUsers: {
    text: 'Oldest first.',
    parameters: [
      ...PAGE_PARAMETERS,
      query('user', text, 'Only the end user with exactly this tracking string.'),
      query('include_inactive', flag, 'true: also inactive ones.'),
    ],
    answers: { 200: listOf(answer, USER) },
  },
  getEndUser: { answers: { 200: oneRecord(answer, 'The end user.', USER) } },
  updateEndUser: change,
  updateEndUserByQuery: { ...change, parameters: userParameter, failures: ['not_found'] },
  deleteEndUser: deactivation,
  deleteEndUserByQuery: { ...deactivation, parameters: userParameter, failures: ['not_found'] },
})
