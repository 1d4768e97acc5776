"""Endpoints of notifications: rules, tests, the log of deliveries, retries."""

from django.urls import reverse
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from apps.notifications import services
from apps.notifications.serializers import (
    DeliveryQuery,
    DeliverySerializer,
    RuleRequestSerializer,
    RuleSerializer,
)
from trainops.http.asking import body_of, person, query_of
from trainops.http.pagination import NewestFirst
from trainops.http.permissions import IsOperator
from trainops.http.serializers import MessageSerializer


class RulesView(APIView):
    permission_classes = (IsOperator,)
    pagination_class = NewestFirst

    @extend_schema(operation_id="notification_rules_list", responses=RuleSerializer(many=True))
    def get(self, request: Request) -> Response:
        """List the caller's notification rules, for admins those of all users."""
        query_of(request, is_paged=True)
        paginator = NewestFirst()
        page = paginator.paginate_queryset(services.visible_to(person(request)), request, self)
        return paginator.get_paginated_response(RuleSerializer(page, many=True).data)

    @extend_schema(
        operation_id="notification_rules_create",
        request=RuleRequestSerializer,
        responses={201: RuleSerializer},
    )
    def post(self, request: Request) -> Response:
        """Create a notification rule."""
        rule = services.create(person(request), **body_of(request, RuleRequestSerializer))
        rule.refresh_from_db()
        address = reverse("api-notification-rule", args=[rule.pk])
        return Response(RuleSerializer(rule).data, status=201, headers={"Location": address})


class RuleView(APIView):
    permission_classes = (IsOperator,)

    @extend_schema(operation_id="notification_rules_get", responses=RuleSerializer)
    def get(self, request: Request, rule_id: int) -> Response:
        """Return a notification rule."""
        return Response(RuleSerializer(services.get(rule_id, person(request))).data)

    @extend_schema(
        operation_id="notification_rules_update",
        request=RuleRequestSerializer,
        responses=RuleSerializer,
    )
    def patch(self, request: Request, rule_id: int) -> Response:
        """Change fields of a notification rule; a changed alert reads all points anew."""
        rule = services.get(rule_id, person(request))
        serializer = RuleRequestSerializer(data=request.data, partial=True)
        serializer.is_valid(raise_exception=True)
        services.update(rule, **serializer.validated_data)
        return Response(RuleSerializer(rule).data)

    @extend_schema(operation_id="notification_rules_delete", responses={200: MessageSerializer})
    def delete(self, request: Request, rule_id: int) -> Response:
        """Delete a notification rule with its deliveries."""
        services.get(rule_id, person(request)).delete()
        return Response({"message": f"Notification rule {rule_id} was deleted."})


class TestView(APIView):
    permission_classes = (IsOperator,)

    @extend_schema(
        operation_id="notification_rules_test", request=None, responses={202: DeliverySerializer}
    )
    def post(self, request: Request, rule_id: int) -> Response:
        """Send a test notification."""
        body_of(request)
        delivery = services.test(services.get(rule_id, person(request)))
        delivery.refresh_from_db()
        return Response(DeliverySerializer(delivery).data, status=202)


class DeliveriesView(APIView):
    permission_classes = (IsOperator,)
    pagination_class = NewestFirst

    @extend_schema(
        operation_id="notification_deliveries_list",
        parameters=[DeliveryQuery],
        responses=DeliverySerializer(many=True),
    )
    def get(self, request: Request) -> Response:
        """List the deliveries of the caller's rules, latest first."""
        query = query_of(request, DeliveryQuery, is_paged=True)
        paginator = NewestFirst()
        found = services.deliveries_of(person(request)).filter(**query)
        page = paginator.paginate_queryset(found, request, self)
        return paginator.get_paginated_response(DeliverySerializer(page, many=True).data)


class RetryView(APIView):
    permission_classes = (IsOperator,)

    @extend_schema(
        operation_id="notification_deliveries_retry",
        request=None,
        responses={202: DeliverySerializer},
    )
    def post(self, request: Request, delivery_id: int) -> Response:
        """Send a delivery again at once."""
        body_of(request)
        delivery = services.retry(delivery_id, person(request))
        return Response(DeliverySerializer(delivery).data, status=202)
