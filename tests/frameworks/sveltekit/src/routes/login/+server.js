import { login } from '../../../limits.mjs';

export const POST = ({ request, getClientAddress }) => login(request, { address: getClientAddress() });
